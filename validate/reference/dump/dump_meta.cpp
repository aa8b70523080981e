#include <fmt/core.h>

#include <utility>

#include "base/json.h"
#include "base/json_members.h"
#include "validate/reference/dump/dump.h"

namespace llm {
namespace {

constexpr std::string_view kFormat = "llmcheck-act/1";
constexpr std::size_t kMaxShape = std::size_t{1} << 24;

}  // namespace

std::string to_json(const DumpMeta& meta) {
  Json json = {{"format", kFormat},
               {"producer", meta.producer},
               {"producer_version", meta.producer_version},
               {"model_sha256", meta.model_sha256},
               {"model_name", meta.model_name},
               {"tokenizer_hash", meta.tokenizer_hash},
               {"merges_hash", meta.merges_hash},
               {"oracle", meta.oracle},
               {"compute", meta.compute},
               {"kv", meta.kv},
               {"eps", meta.eps},
               {"rope_theta", meta.rope_theta},
               {"qk_layout", meta.qk_layout},
               {"taps_absent", meta.taps_absent}};
  json["hparams"] = {
      {"n_layers", meta.n_layers}, {"head_dim", meta.head_dim}, {"rope_dim", meta.rope_dim}};
  for (const auto& [name, number] : meta.numbers) json["hparams"][name] = number;
  if (!meta.head_dims.empty()) json["hparams"]["head_dims"] = meta.head_dims;
  if (!meta.rope_dims.empty()) json["hparams"]["rope_dims"] = meta.rope_dims;
  // Names come from model files and need not be UTF-8; the dump must be.
  return json_text(json);
}

Result<DumpMeta> parse_dump_meta(std::string_view text) {
  constexpr const char* kName = "__meta__";
  LLM_TRY(const Json json, parse_json_object(text, kName));
  const JsonMembers members(json, kName);
  LLM_TRY(const std::string format, members.text("format"));
  if (format != kFormat) {
    return Error{ErrorCode::kUnsupported, members.field("format"),
                 fmt::format("found {}, need \"{}\"", shown_json(format), kFormat)};
  }
  DumpMeta meta;
  for (const auto& [key, target] :
       {std::pair{"producer", &meta.producer},
        std::pair{"producer_version", &meta.producer_version},
        std::pair{"model_sha256", &meta.model_sha256}, std::pair{"model_name", &meta.model_name},
        std::pair{"tokenizer_hash", &meta.tokenizer_hash},
        std::pair{"merges_hash", &meta.merges_hash}, std::pair{"oracle", &meta.oracle},
        std::pair{"compute", &meta.compute}, std::pair{"kv", &meta.kv},
        std::pair{"qk_layout", &meta.qk_layout}}) {
    if (target == &meta.merges_hash && !members.has(key)) continue;  // of dumps made before it
    LLM_TRY(*target, members.text(key));
  }
  if (meta.qk_layout != "interleaved" && meta.qk_layout != "half") {
    return malformed_json(members.field("qk_layout"), shown_json(meta.qk_layout),
                          "\"interleaved\" or \"half\"");
  }
  LLM_TRY(meta.eps, members.number("eps"));
  LLM_TRY(meta.rope_theta, members.number("rope_theta"));
  if (members.has("taps_absent")) {
    LLM_TRY(const Json* absent, members.object("taps_absent"));
    const JsonMembers reasons(*absent, members.field("taps_absent"));
    for (const auto& [tap, reason] : absent->items()) {
      LLM_TRY(meta.taps_absent[tap], reasons.text(tap.c_str()));
    }
  }
  if (!members.has("hparams")) return meta;
  LLM_TRY(const Json* shape, members.object("hparams"));
  const JsonMembers sizes(*shape, members.field("hparams"));
  for (const auto& [key, target] :
       {std::pair{"n_layers", &meta.n_layers}, std::pair{"head_dim", &meta.head_dim},
        std::pair{"rope_dim", &meta.rope_dim}}) {
    if (!sizes.has(key) || (*shape)[key].is_null()) continue;  // unknown
    LLM_TRY(*target, sizes.count(key, 0, kMaxShape));
  }
  for (const auto& [name, value] : shape->items()) {
    if (value.is_number() && name != "n_layers" && name != "head_dim" && name != "rope_dim")
      meta.numbers[name] = value.get<double>();
    if (!value.is_object()) continue;
    for (const auto& [part, number] : value.items())
      if (number.is_number()) meta.numbers[name + "." + part] = number.get<double>();
  }
  for (const auto& [key, target] :
       {std::pair{"head_dims", &meta.head_dims}, std::pair{"rope_dims", &meta.rope_dims}}) {
    if (!sizes.has(key)) continue;
    LLM_TRY(const Json* dims, sizes.list(key));
    for (const Json& dim : *dims) {
      if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > kMaxShape)
        return malformed_json(sizes.field(key), shown_json(dim),
                              fmt::format("a number from 0 to {}", kMaxShape));
      target->push_back(dim.get<std::size_t>());
    }
  }
  return meta;
}

}  // namespace llm
