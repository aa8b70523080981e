#include "base/json_members.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/json.h"

namespace llm {
namespace {

constexpr std::size_t kMaxShown = 40;

std::string array_rule(std::optional<std::size_t> size) {
  return size ? fmt::format("an array of {}", *size) : "an array, not empty";
}

}  // namespace

Error malformed_json(std::string field, const std::string& found, const std::string& rule) {
  return Error{ErrorCode::kMalformed, std::move(field),
               fmt::format("found {}, need {}", found, rule)};
}

std::string shown_json(const Json& value) {
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  std::string text = json_text(value, -1, /*ascii=*/true);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

Result<Json> parse_json_object(std::string_view text, const std::string& field) {
  Json json = parse_json(text);
  if (json.is_discarded())
    return malformed_json(field, "none, or more than one value", "one object");
  if (!json.is_object()) return malformed_json(field, shown_json(json), "an object");
  return json;
}

Result<std::vector<std::int32_t>> token_ids(const Json& array, const std::string& field) {
  std::vector<std::int32_t> ids;
  for (const Json& value : array) {
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() <= INT32_MAX;
    if (!fits)
      return malformed_json(fmt::format("{}[{}]", field, ids.size()), shown_json(value),
                            "a token id");
    ids.push_back(value.get<std::int32_t>());
  }
  return ids;
}

std::string JsonMembers::field(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

Result<const Json*> JsonMembers::member(const char* key, std::string_view rule) const {
  const auto found = json_.find(key);
  if (found == json_.end()) return malformed_json(field(key), "none", std::string(rule));
  return &*found;
}

Result<std::string> JsonMembers::text(const char* key) const {
  LLM_TRY(const Json* value, member(key, "a string"));
  if (!value->is_string()) return malformed_json(field(key), shown_json(*value), "a string");
  return value->get<std::string>();
}

Result<std::string> JsonMembers::sha256(const char* key) const {
  LLM_TRY(std::string hash, text(key));
  if (hash.size() == 64 && hash.find_first_not_of("0123456789abcdef") == std::string::npos)
    return hash;
  return malformed_json(field(key), shown_json(hash), "64 lower-case hex digits");
}

Result<std::size_t> JsonMembers::count(const char* key, std::size_t lowest,
                                       std::size_t highest) const {
  const std::string rule = fmt::format("an integer in {}..{}", lowest, highest);
  LLM_TRY(const Json* value, member(key, rule));
  const bool fits = value->is_number_unsigned() && value->get<std::uint64_t>() >= lowest &&
                    value->get<std::uint64_t>() <= highest;
  if (!fits) return malformed_json(field(key), shown_json(*value), rule);
  return value->get<std::size_t>();
}

Result<double> JsonMembers::number(const char* key) const {
  LLM_TRY(const Json* value, member(key, "a number"));
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  return malformed_json(field(key), shown_json(*value), "a number");
}

Result<double> JsonMembers::amount(const char* key) const {
  constexpr const char* kRule = "a number that is 0 or more";
  LLM_TRY(const Json* value, member(key, kRule));
  if (value->is_number() && value->get<double>() >= 0) return value->get<double>();
  return malformed_json(field(key), shown_json(*value), kRule);
}

Result<bool> JsonMembers::boolean(const char* key) const {
  LLM_TRY(const Json* value, member(key, "true or false"));
  if (value->is_boolean()) return value->get<bool>();
  return malformed_json(field(key), shown_json(*value), "true or false");
}

Result<const Json*> JsonMembers::object(const char* key) const {
  LLM_TRY(const Json* value, member(key, "an object"));
  if (value->is_object()) return value;
  return malformed_json(field(key), shown_json(*value), "an object");
}

Result<const Json*> JsonMembers::list(const char* key) const {
  LLM_TRY(const Json* value, member(key, "an array"));
  if (value->is_array()) return value;
  return malformed_json(field(key), shown_json(*value), "an array");
}

Status JsonMembers::format(std::string_view wanted) const {
  LLM_TRY(const std::string found, text("format"));
  if (found == wanted) return Ok{};
  return malformed_json(field("format"), shown_json(found), fmt::format("\"{}\"", wanted));
}

Result<std::vector<std::int32_t>> JsonMembers::ids(const char* key,
                                                   std::optional<std::size_t> size) const {
  LLM_TRY(const Json* values, array(key, size));
  return token_ids(*values, field(key));
}

Result<const Json*> JsonMembers::array(const char* key, std::optional<std::size_t> size) const {
  LLM_TRY(const Json* value, member(key, array_rule(size)));
  LLM_RETURN_IF_ERROR(check_array(*value, field(key), size));
  return value;
}

Status JsonMembers::check_array(const Json& value, const std::string& field,
                                std::optional<std::size_t> size) {
  if (!value.is_array()) return malformed_json(field, shown_json(value), array_rule(size));
  if (size ? value.size() == *size : !value.empty()) return Ok{};
  return malformed_json(field, fmt::format("{} entries", value.size()), array_rule(size));
}

}  // namespace llm
