#include "validate/outputs/verify/reference.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/json_members.h"

namespace llm {
namespace {

constexpr int kSchemaVersion = 1;
constexpr std::string_view kFormat = "llmcheck-verify/1";
constexpr std::size_t kMaxTop = 1000;
constexpr std::size_t kMaxSteps = std::size_t{1} << 20;

Result<TopStep> read_step(const Json& ids, const Json& logits, std::size_t top_k,
                          const std::string& path, std::size_t t) {
  const std::string ids_field = fmt::format("{}.top_ids[{}]", path, t);
  const std::string logits_field = fmt::format("{}.top_logits[{}]", path, t);
  LLM_RETURN_IF_ERROR(JsonMembers::check_array(ids, ids_field, top_k));
  LLM_RETURN_IF_ERROR(JsonMembers::check_array(logits, logits_field, top_k));
  TopStep step;
  LLM_TRY(step.ids, token_ids(ids, ids_field));
  if (std::set(step.ids.begin(), step.ids.end()).size() != top_k)
    return malformed_json(ids_field, "an id twice", "distinct ids");
  for (const Json& value : logits) {
    // Not cast before the range is known: what exceeds f32 must not become undefined.
    if (!value.is_number() ||
        !(std::abs(value.get<double>()) <= static_cast<double>(std::numeric_limits<float>::max())))
      return malformed_json(logits_field, shown_json(value), "numbers within f32");
    const auto logit = value.get<float>();
    if (!step.logits.empty() && logit > step.logits.back())
      return malformed_json(logits_field, fmt::format("{} after {}", logit, step.logits.back()),
                            "descending logits");
    step.logits.push_back(logit);
  }
  return step;
}

Result<VerifyPrompt> read_prompt(const Json& json, const std::string& path,
                                 const VerifyReference& reference) {
  if (!json.is_object()) return malformed_json(path, shown_json(json), "an object");
  const JsonMembers members(json, path);
  VerifyPrompt prompt;
  LLM_TRY(prompt.id, members.text("id"));
  LLM_TRY(prompt.kind, members.text("kind"));
  if (prompt.kind != "base" && prompt.kind != "instruct")
    return malformed_json(members.field("kind"), shown_json(json["kind"]),
                          "\"base\" or \"instruct\"");
  if (json.contains("text")) {
    LLM_TRY(prompt.text, members.text("text"));
  }
  LLM_TRY(prompt.ids, members.ids("ids", std::nullopt));
  LLM_TRY(const auto taken, members.ids("tokens", reference.n_steps));
  LLM_TRY(const Json* top_ids, members.array("top_ids", reference.n_steps));
  LLM_TRY(const Json* top_logits, members.array("top_logits", reference.n_steps));
  for (std::size_t t = 0; t < reference.n_steps; ++t) {
    LLM_TRY(TopStep step, read_step((*top_ids)[t], (*top_logits)[t], reference.top_k, path, t));
    if (step.choice() != taken[t])
      return malformed_json(fmt::format("{}.tokens[{}]", path, t), std::to_string(taken[t]),
                            fmt::format("{}, the first of top_ids[{}]", step.choice(), t));
    prompt.steps.push_back(std::move(step));
  }
  return prompt;
}

Status read_head(const Json& json, VerifyReference& reference) {
  const JsonMembers members(json, "");
  LLM_TRY(const std::size_t version,
          members.count("schema_version", 0, std::numeric_limits<std::int32_t>::max()));
  if (version != kSchemaVersion) {
    return Error{ErrorCode::kUnsupported, "schema_version",
                 fmt::format("found {}, need {}", version, kSchemaVersion)};
  }
  LLM_RETURN_IF_ERROR(members.format(kFormat));
  LLM_TRY(reference.producer, members.text("producer"));
  LLM_TRY(reference.oracle, members.text("oracle"));
  LLM_TRY(reference.model_name, members.text("model_name"));
  LLM_TRY(reference.model_sha256, members.sha256("model_sha256"));
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
  LLM_TRY(const Json json, parse_json_object(text));
  VerifyReference reference;
  LLM_RETURN_IF_ERROR(read_head(json, reference));
  LLM_TRY(const Json* prompts, JsonMembers(json, "").array("prompts", std::nullopt));
  std::set<std::string> known;
  for (const Json& entry : *prompts) {
    const std::string path = fmt::format("prompts[{}]", reference.prompts.size());
    LLM_TRY(VerifyPrompt prompt, read_prompt(entry, path, reference));
    if (!known.insert(prompt.id).second)
      return malformed_json(path + ".id", shown_json(entry["id"]) + " again", "ids of their own");
    reference.prompts.push_back(std::move(prompt));
  }
  return reference;
}

Status check_ids(const VerifyReference& reference, std::size_t n_vocab) {
  const auto check = [&](std::span<const TokenId> ids, const std::string& field) -> Status {
    const auto bad = std::ranges::find_if(
        ids, [&](TokenId id) { return static_cast<std::size_t>(id) >= n_vocab; });
    if (bad == ids.end()) return Ok{};
    return malformed_json(fmt::format("{}[{}]", field, bad - ids.begin()), std::to_string(*bad),
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
