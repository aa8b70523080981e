#include "tools/llmtok/special.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
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

constexpr std::size_t kShownMismatches = 5;

struct Reference {
  std::string text;
  std::vector<TokenId> ids;
  std::optional<std::string> decoded;
};

Error malformed(std::size_t line, std::string found) {
  return Error{
      .code = ErrorCode::kMalformed,
      .field = fmt::format("line {}", line),
      .message = fmt::format("found {}, need {{\"text\": STRING, \"ids\": [INTEGER...]}}", found)};
}

Result<Reference> parse_line(std::string_view text, std::size_t line) {
  const auto json = parse_json(text);
  if (json.is_discarded()) return malformed(line, "no JSON");
  if (!json.is_object()) return malformed(line, std::string("JSON ") + json.type_name());
  const auto text_field = json.find("text");
  const auto ids = json.find("ids");
  if (text_field == json.end() || !text_field->is_string()) return malformed(line, "no \"text\"");
  if (ids == json.end() || !ids->is_array()) return malformed(line, "no \"ids\"");
  Reference reference{.text = text_field->get<std::string>(), .ids = {}, .decoded = {}};
  for (const auto& id : *ids) {
    const bool fits = id.is_number_integer() && id.get<double>() >= 0 &&
                      id.get<double>() <= std::numeric_limits<TokenId>::max();
    if (!fits) return malformed(line, fmt::format("id {}", json_text(id)));
    reference.ids.push_back(id.get<TokenId>());
  }
  const auto decoded = json.find("decoded");
  if (decoded == json.end()) return reference;
  if (!decoded->is_string()) return malformed(line, "\"decoded\" that is not a string");
  reference.decoded = decoded->get<std::string>();
  return reference;
}

EncodeOptions options_for(const Tokenizer& tokenizer, const Reference& reference,
                          bool parse_special) {
  const VocabSpec& spec = tokenizer.spec();
  const std::string_view text = reference.text;
  const auto& ids = reference.ids;
  const auto spelled = [&](TokenId id, bool at_end) {
    const std::string& spelling = tokenizer.spelling(id);
    return parse_special && (at_end ? text.ends_with(spelling) : text.starts_with(spelling));
  };
  return {.add_bos = spec.bos && !ids.empty() && ids.front() == *spec.bos &&
                     (!spelled(*spec.bos, false) || (ids.size() > 1 && ids[1] == *spec.bos)),
          .add_eos =
              spec.eos && !ids.empty() && ids.back() == *spec.eos &&
              (!spelled(*spec.eos, true) || (ids.size() > 1 && ids[ids.size() - 2] == *spec.eos)),
          .parse_special = parse_special};
}

bool decodes(const Tokenizer& tokenizer, const Reference& reference) {
  if (!reference.decoded) return true;
  const auto& ids = reference.ids;
  return std::all_of(ids.begin(), ids.end(), [&](TokenId id) { return tokenizer.contains(id); }) &&
         tokenizer.decode(ids) == *reference.decoded;
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

Result<TokenCheck> check_tokens(const Tokenizer& tokenizer, std::string_view reference,
                                bool parse_special) {
  TokenCheck check;
  std::size_t n_ids = 0;
  for (std::size_t line = 1; !reference.empty(); ++line) {
    const std::size_t end = std::min(reference.find('\n'), reference.size());
    const std::string_view text = reference.substr(0, end);
    reference.remove_prefix(std::min(end + 1, reference.size()));
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    LLM_TRY(Reference golden, parse_line(text, line));
    if (golden.text.size() > Tokenizer::kMaxTextBytes) return malformed(line, "a text too long");
    auto found = tokenizer.encode(golden.text, options_for(tokenizer, golden, parse_special));
    ++check.total;
    n_ids += golden.ids.size();
    if (found == golden.ids && decodes(tokenizer, golden)) {
      ++check.matched;
    } else if (check.mismatches.size() < kShownMismatches) {
      const auto differs =
          std::mismatch(found.begin(), found.end(), golden.ids.begin(), golden.ids.end());
      const auto first = static_cast<std::size_t>(differs.first - found.begin());
      check.mismatches.push_back({.line = line,
                                  .text = std::move(golden.text),
                                  .expected = std::move(golden.ids),
                                  .found = std::move(found),
                                  .first = first});
    }
  }
  if (n_ids == 0) {
    return Error{ErrorCode::kMalformed,
                 {},
                 fmt::format("found no {}, need at least one",
                             check.total == 0 ? "reference lines" : "ids in any line")};
  }
  return check;
}

}  // namespace llm
