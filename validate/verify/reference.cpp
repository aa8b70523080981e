#include "validate/verify/reference.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace llm {
namespace {

using Json = nlohmann::json;
constexpr int kSchemaVersion = 1;
constexpr std::string_view kFormat = "llmcheck-verify/1";
constexpr std::size_t kMaxShown = 40;
constexpr std::size_t kMaxTop = 1000;
constexpr std::size_t kMaxSteps = std::size_t{1} << 20;

Error malformed(std::string field, const std::string& found, const std::string& rule) {
  return Error{.code = ErrorCode::kMalformed,
               .field = std::move(field),
               .message = fmt::format("found {}, need {}", found, rule)};
}

std::string shown(const Json& value) {
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

/// The members of one JSON object, each wanted of a kind. `path` names the object in errors.
class Members {
 public:
  Members(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  std::string field(std::string_view key) const {
    return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  }

  Result<const Json*> member(const char* key, std::string_view rule) const {
    const auto found = json_.find(key);
    if (found == json_.end()) return malformed(field(key), "none", std::string(rule));
    return &*found;
  }

  Result<std::string> text(const char* key) const {
    LLM_TRY(const Json* value, member(key, "a string"));
    if (!value->is_string()) return malformed(field(key), shown(*value), "a string");
    return value->get<std::string>();
  }

  Result<std::size_t> count(const char* key, std::size_t lowest, std::size_t highest) const {
    const std::string rule = fmt::format("an integer in {}..{}", lowest, highest);
    LLM_TRY(const Json* value, member(key, rule));
    const bool fits = value->is_number_unsigned() && value->get<std::uint64_t>() >= lowest &&
                      value->get<std::uint64_t>() <= highest;
    if (!fits) return malformed(field(key), shown(*value), rule);
    return value->get<std::size_t>();
  }

  Result<const Json*> array(const char* key, std::optional<std::size_t> size) const {
    const std::string rule = size ? fmt::format("an array of {}", *size) : "an array, not empty";
    LLM_TRY(const Json* value, member(key, rule));
    LLM_RETURN_IF_ERROR(check_array(*value, field(key), size));
    return value;
  }

  static Status check_array(const Json& value, const std::string& field,
                            std::optional<std::size_t> size) {
    const std::string rule = size ? fmt::format("an array of {}", *size) : "an array, not empty";
    if (!value.is_array()) return malformed(field, shown(value), rule);
    const bool fits = size ? value.size() == *size : !value.empty();
    if (!fits) return malformed(field, fmt::format("{} entries", value.size()), rule);
    return Ok{};
  }

 private:
  const Json& json_;
  std::string path_;
};

Result<std::vector<TokenId>> token_ids(const Json& array, const std::string& field) {
  std::vector<TokenId> ids;
  for (const Json& value : array) {
    const bool fits = value.is_number_unsigned() &&
                      value.get<std::uint64_t>() <= std::numeric_limits<TokenId>::max();
    if (!fits)
      return malformed(fmt::format("{}[{}]", field, ids.size()), shown(value), "a token id");
    ids.push_back(value.get<TokenId>());
  }
  return ids;
}

Result<TopStep> read_step(const Json& ids, const Json& logits, std::size_t top_k,
                          const std::string& path, std::size_t t) {
  const std::string ids_field = fmt::format("{}.top_ids[{}]", path, t);
  const std::string logits_field = fmt::format("{}.top_logits[{}]", path, t);
  LLM_RETURN_IF_ERROR(Members::check_array(ids, ids_field, top_k));
  LLM_RETURN_IF_ERROR(Members::check_array(logits, logits_field, top_k));
  TopStep step;
  LLM_TRY(step.ids, token_ids(ids, ids_field));
  if (std::set(step.ids.begin(), step.ids.end()).size() != top_k)
    return malformed(ids_field, "an id twice", "distinct ids");
  for (const Json& value : logits) {
    // Not cast before the range is known: what exceeds f32 must not become undefined.
    if (!value.is_number() ||
        !(std::abs(value.get<double>()) <= static_cast<double>(std::numeric_limits<float>::max())))
      return malformed(logits_field, shown(value), "numbers within f32");
    const auto logit = value.get<float>();
    if (!step.logits.empty() && logit > step.logits.back())
      return malformed(logits_field, fmt::format("{} behind {}", logit, step.logits.back()),
                       "descending logits");
    step.logits.push_back(logit);
  }
  return step;
}

Result<VerifyPrompt> read_prompt(const Json& json, const std::string& path,
                                 const VerifyReference& reference) {
  if (!json.is_object()) return malformed(path, shown(json), "an object");
  const Members members(json, path);
  VerifyPrompt prompt;
  LLM_TRY(prompt.id, members.text("id"));
  LLM_TRY(prompt.kind, members.text("kind"));
  if (prompt.kind != "base" && prompt.kind != "instruct")
    return malformed(members.field("kind"), shown(json["kind"]), "\"base\" or \"instruct\"");
  if (json.contains("text")) {
    LLM_TRY(prompt.text, members.text("text"));
  }
  LLM_TRY(const Json* ids, members.array("ids", std::nullopt));
  LLM_TRY(prompt.ids, token_ids(*ids, members.field("ids")));
  LLM_TRY(const Json* tokens, members.array("tokens", reference.n_steps));
  LLM_TRY(const auto taken, token_ids(*tokens, members.field("tokens")));
  LLM_TRY(const Json* top_ids, members.array("top_ids", reference.n_steps));
  LLM_TRY(const Json* top_logits, members.array("top_logits", reference.n_steps));
  for (std::size_t t = 0; t < reference.n_steps; ++t) {
    LLM_TRY(TopStep step, read_step((*top_ids)[t], (*top_logits)[t], reference.top_k, path, t));
    if (step.choice() != taken[t])
      return malformed(fmt::format("{}.tokens[{}]", path, t), std::to_string(taken[t]),
                       fmt::format("{}, the first of top_ids[{}]", step.choice(), t));
    prompt.steps.push_back(std::move(step));
  }
  return prompt;
}

Status read_head(const Json& json, VerifyReference& reference) {
  const Members members(json, "");
  LLM_TRY(const std::size_t version,
          members.count("schema_version", 0, std::numeric_limits<std::int32_t>::max()));
  if (version != kSchemaVersion) {
    return Error{.code = ErrorCode::kUnsupported,
                 .field = "schema_version",
                 .message = fmt::format("found {}, need {}", version, kSchemaVersion)};
  }
  LLM_TRY(const std::string format, members.text("format"));
  if (format != kFormat)
    return malformed("format", shown(json["format"]), fmt::format("\"{}\"", kFormat));
  LLM_TRY(reference.producer, members.text("producer"));
  LLM_TRY(reference.oracle, members.text("oracle"));
  LLM_TRY(reference.model_name, members.text("model_name"));
  LLM_TRY(reference.model_sha256, members.text("model_sha256"));
  if (reference.model_sha256.size() != 64 ||
      reference.model_sha256.find_first_not_of("0123456789abcdef") != std::string::npos)
    return malformed("model_sha256", shown(json["model_sha256"]), "64 lower-case hex digits");
  LLM_TRY(reference.tokenizer_hash, members.text("tokenizer_hash"));
  LLM_TRY(reference.n_steps, members.count("steps", 1, kMaxSteps));
  LLM_TRY(reference.top_k, members.count("top_k", 2, kMaxTop));
  return Ok{};
}

}  // namespace

std::size_t VerifyReference::context() const {
  std::size_t longest = 0;
  for (const VerifyPrompt& prompt : prompts) longest = std::max(longest, prompt.ids.size());
  return longest + n_steps;
}

Result<VerifyReference> parse_verify_reference(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return malformed("JSON", "none, or more than one value", "one object");
  if (!json.is_object()) return malformed("JSON", shown(json), "an object");
  VerifyReference reference;
  LLM_RETURN_IF_ERROR(read_head(json, reference));
  LLM_TRY(const Json* prompts, Members(json, "").array("prompts", std::nullopt));
  std::set<std::string> known;
  for (const Json& entry : *prompts) {
    const std::string path = fmt::format("prompts[{}]", reference.prompts.size());
    LLM_TRY(VerifyPrompt prompt, read_prompt(entry, path, reference));
    if (!known.insert(prompt.id).second)
      return malformed(path + ".id", shown(entry["id"]) + " again", "ids of their own");
    reference.prompts.push_back(std::move(prompt));
  }
  return reference;
}

Status check_ids(const VerifyReference& reference, std::size_t n_vocab) {
  const auto check = [&](std::span<const TokenId> ids, const std::string& field) -> Status {
    const auto bad = std::ranges::find_if(
        ids, [&](TokenId id) { return static_cast<std::size_t>(id) >= n_vocab; });
    if (bad == ids.end()) return Ok{};
    return malformed(fmt::format("{}[{}]", field, bad - ids.begin()), std::to_string(*bad),
                     fmt::format("a token id below {}, the size of the vocabulary", n_vocab));
  };
  for (std::size_t p = 0; p < reference.prompts.size(); ++p) {
    const VerifyPrompt& prompt = reference.prompts[p];
    LLM_RETURN_IF_ERROR(check(prompt.ids, fmt::format("prompts[{}].ids", p)));
    for (std::size_t t = 0; t < prompt.steps.size(); ++t)
      LLM_RETURN_IF_ERROR(check(prompt.steps[t].ids, fmt::format("prompts[{}].top_ids[{}]", p, t)));
  }
  return Ok{};
}

void keep_quick_prompts(VerifyReference& reference) {
  auto& prompts = reference.prompts;
  if (prompts.size() <= 2) return;
  const auto second = std::ranges::find_if(
      prompts, [&](const VerifyPrompt& p) { return p.kind != prompts.front().kind; });
  if (second != prompts.end()) std::swap(prompts[1], *second);
  prompts.resize(2);
}

}  // namespace llm
