#include "validate/text/equivalence/frozen.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/json.h"
#include "validate/report/json_members.h"

namespace llm {
namespace {

constexpr std::string_view kFormat = "llmcheck-equivalence/1";
constexpr std::size_t kRowEntries = 3;

std::string line(const OrderedJson& json) { return json_text(json); }

/// One line for each member, or the ten thousand numbers would have one each.
std::string case_json(const CaseText& text) {
  OrderedJson rows = OrderedJson::array();
  for (const FrozenRow& row : text.rows) rows.push_back({row.top, row.logit, row.hash});
  return fmt::format(
      "    {{\"name\": {},\n     \"logits_sha256\": {},\n     \"prompt\": {},\n     \"tokens\": "
      "{},\n     \"rows\": {}}}",
      line(text.name), line(text.logits_sha256), line(text.prompt), line(text.tokens), line(rows));
}

Result<FrozenRow> read_row(const Json& json, const std::string& path) {
  LLM_RETURN_IF_ERROR(JsonMembers::check_array(json, path, kRowEntries));
  constexpr double kLargest = static_cast<double>(std::numeric_limits<float>::max());
  if (!json[0].is_number_unsigned() || !json[1].is_number() ||
      !(std::abs(json[1].get<double>()) <= kLargest) || !json[2].is_string())
    return malformed_json(path, "other entries", "a token id, its logit and a hash");
  return FrozenRow{json[0].get<TokenId>(), json[1].get<float>(), json[2].get<std::string>()};
}

Result<CaseText> read_case(const Json& json, const std::string& path) {
  if (!json.is_object()) return malformed_json(path, shown_json(json), "an object");
  const JsonMembers members(json, path);
  CaseText text;
  LLM_TRY(text.name, members.text("name"));
  LLM_TRY(text.logits_sha256, members.sha256("logits_sha256"));
  LLM_TRY(const Json* prompt, members.array("prompt", std::nullopt));
  LLM_TRY(text.prompt, token_ids(*prompt, members.field("prompt")));
  LLM_TRY(const Json* tokens, members.array("tokens", std::nullopt));
  LLM_TRY(text.tokens, token_ids(*tokens, members.field("tokens")));
  LLM_TRY(const Json* rows, members.array("rows", std::nullopt));
  for (const Json& row : *rows) {
    LLM_TRY(FrozenRow read,
            read_row(row, fmt::format("{}[{}]", members.field("rows"), text.rows.size())));
    text.rows.push_back(std::move(read));
  }
  return text;
}

}  // namespace

std::string frozen_json(const FrozenTexts& frozen) {
  std::string cases;
  for (const CaseText& text : frozen.cases) cases += (cases.empty() ? "" : ",\n") + case_json(text);
  const BaselineOrigin& o = frozen.origin;
  return fmt::format(
      "{{\"format\": \"{}\",\n  \"contract_version\": {},\n  \"model_sha256\": {},\n  "
      "\"engine_version\": {},\n  \"timestamp\": {},\n  \"reason\": {},\n  \"cases\": [\n{}\n  "
      "]}}\n",
      kFormat, frozen.contract_version, line(o.model_sha256), line(o.engine_version),
      line(o.timestamp), line(o.reason), cases);
}

Result<FrozenTexts> parse_frozen(std::string_view text) {
  LLM_TRY(const Json json, parse_json_object(text));
  const JsonMembers members(json, "");
  LLM_TRY(const std::string format, members.text("format"));
  if (format != kFormat)
    return malformed_json("format", shown_json(format), fmt::format("\"{}\"", kFormat));
  FrozenTexts out;
  LLM_TRY(const std::size_t version,
          members.count("contract_version", 1, std::numeric_limits<int>::max()));
  out.contract_version = static_cast<unsigned>(version);
  LLM_TRY(out.origin.model_sha256, members.sha256("model_sha256"));
  LLM_TRY(out.origin.engine_version, members.text("engine_version"));
  LLM_TRY(out.origin.timestamp, members.text("timestamp"));
  LLM_TRY(out.origin.reason, members.text("reason"));
  LLM_TRY(const Json* cases, members.array("cases", std::nullopt));
  std::set<std::string> names;
  for (const Json& entry : *cases) {
    const std::string path = fmt::format("cases[{}]", out.cases.size());
    LLM_TRY(CaseText read, read_case(entry, path));
    if (!names.insert(read.name).second)
      return malformed_json(path + ".name", shown_json(read.name) + " again", "names of their own");
    out.cases.push_back(std::move(read));
  }
  return out;
}

Status check_replaces(const FrozenTexts& made, const FrozenTexts& old) {
  if (made.origin.model_sha256 != old.origin.model_sha256 ||
      made.contract_version != old.contract_version)
    return Ok{};
  for (const CaseText& text : made.cases) {
    const auto found = std::ranges::find(old.cases, text.name, &CaseText::name);
    if (found == old.cases.end() || *found == text) continue;
    return Error{.code = ErrorCode::kIntegrity,
                 .field = "contract_version",
                 .message = fmt::format(
                     "found {}, under which \"{}\" is frozen with other results ({}), need a "
                     "higher one",
                     made.contract_version, text.name,
                     text_difference(text, *found, [](TokenId id) { return std::to_string(id); })),
                 .hint = "a change of bits raises contract::kContractVersion (docs/numerics.md)"};
  }
  return Ok{};
}

}  // namespace llm
