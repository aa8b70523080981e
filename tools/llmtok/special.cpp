#include "tools/llmtok/special.h"

#include <fmt/core.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/shown_text.h"

namespace llm {
namespace {

using Parts = std::vector<std::pair<std::string_view, std::optional<TokenId>>>;

Parts single_parts(const VocabSpec& spec) {
  return {{"bos", spec.bos}, {"eos", spec.eos}, {"unknown", spec.unknown}};
}

Parts fim_parts(const VocabSpec& spec) {
  const VocabSpec::FillInMiddle& fim = spec.fim;
  return {{"prefix", fim.prefix},         {"suffix", fim.suffix},
          {"middle", fim.middle},         {"pad", fim.pad},
          {"repository", fim.repository}, {"file_separator", fim.file_separator}};
}

Json object_of(const Parts& parts) {
  Json object = Json::object();
  for (const auto& [name, id] : parts) object[std::string(name)] = id ? Json(*id) : Json();
  return object;
}

}  // namespace

std::string special_tokens_text(const Tokenizer& tokenizer) {
  std::string out;
  const auto add = [&](const std::string& part, TokenId id) {
    out += fmt::format("{:18}  {:6}  {}\n", part, id, shown(tokenizer.spelling(id)));
  };
  const VocabSpec& spec = tokenizer.spec();
  for (const auto& [name, id] : single_parts(spec))
    if (id) add(std::string(name), *id);
  for (const auto& [name, id] : fim_parts(spec))
    if (id) add(fmt::format("fim {}", name), *id);
  for (const TokenId id : spec.end_of_generation) add("end of generation", id);
  return out;
}

Json special_tokens_json(const Tokenizer& tokenizer) {
  const VocabSpec& spec = tokenizer.spec();
  Json object = object_of(single_parts(spec));
  object["fim"] = object_of(fim_parts(spec));
  object["end_of_generation"] = spec.end_of_generation;
  return object;
}

}  // namespace llm
