#include "validate/outputs/quality/baseline.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>

#include "base/json.h"
#include "base/json_members.h"
#include "validate/outputs/quality/text_windows.h"

namespace llm {
namespace {

constexpr std::string_view kFormat = "llmcheck-quality/2";
constexpr std::string_view kDocumentFormat = "llmcheck-documents/1";
constexpr double kPerplexityGate = 0.05;
constexpr double kTextGate = 0.10;
constexpr double kLossGate = 0.002;

CheckResult gate(const std::string& name, const char* signal, double value, double baseline,
                 bool passed, const std::string& rule) {
  return {fmt::format("{}: {}", name, signal), passed,
          fmt::format("{:.6g}, baseline {:.6g}, {:+.1f} %, {}", value, baseline,
                      value == baseline ? 0 : (value / baseline - 1) * 100, rule)};
}

Result<BaselineOrigin> read_origin(const JsonMembers& members) {
  BaselineOrigin out;
  LLM_TRY(out.model_sha256, members.text("model_sha256"));
  LLM_TRY(out.text_sha256, members.text("text_sha256"));
  LLM_TRY(out.engine_version, members.text("engine_version"));
  LLM_TRY(out.timestamp, members.text("timestamp"));
  LLM_TRY(out.reason, members.text("reason"));
  return out;
}

void add_origin(const BaselineOrigin& origin, OrderedJson& json) {
  json["model_sha256"] = origin.model_sha256;
  json["text_sha256"] = origin.text_sha256;
  json["engine_version"] = origin.engine_version;
  json["timestamp"] = origin.timestamp;
  json["reason"] = origin.reason;
}

std::string document_detail(const DocumentGate& gate, std::size_t n_documents) {
  const char* words = gate.verdict == Verdict::kPass   ? "no loss above 0.2 %"
                      : gate.verdict == Verdict::kFail ? "a loss above 0.2 %"
                                                       : "UNDECIDED, needs more text";
  return fmt::format("{}: perplexity {:+.3f} % ({:+.3f} to {:+.3f}) after {} of {} documents",
                     words, std::expm1(gate.mean) * 100, std::expm1(gate.lower) * 100,
                     std::expm1(gate.upper) * 100, gate.documents, n_documents);
}

}  // namespace

QualityBaseline make_baseline(const QualityResult& result, const QualityConfig& config) {
  return {.implementation = result.name,
          .origin = {},
          .tokens_sha256 = tokens_hash(result),
          .config = config,
          .perplexity = result.perplexity,
          .repetition = result.repetition,
          .distinct2 = result.distinct2,
          .distinct3 = result.distinct3,
          .consistency = result.consistency};
}

std::string baseline_json(const QualityBaseline& b) {
  const QualityConfig& c = b.config;
  OrderedJson json = {{"format", kFormat}, {"implementation", b.implementation}};
  add_origin(b.origin, json);
  json.update({{"tokens_sha256", b.tokens_sha256},
               {"config",
                {{"prompts", c.prompts},
                 {"prompt_tokens", c.prompt_tokens},
                 {"new_tokens", c.new_tokens},
                 {"runs", c.runs},
                 {"openings", c.openings},
                 {"opening_tokens", c.opening_tokens},
                 {"temperature", c.temperature},
                 {"seed", c.seed}}},
               {"perplexity", b.perplexity},
               {"repetition", b.repetition},
               {"distinct2", b.distinct2},
               {"distinct3", b.distinct3},
               {"consistency", b.consistency}});
  return json_text(json, 2) + "\n";
}

std::string document_baseline_json(const DocumentBaseline& b) {
  OrderedJson json = {{"format", kDocumentFormat}};
  add_origin(b.origin, json);
  json["seed"] = b.seed;
  OrderedJson documents = OrderedJson::array();
  for (const DocumentScore& score : b.documents) documents.push_back({score.nll, score.tokens});
  // One line for each pair would be hundreds.
  std::string text = json_text(json, 2);
  text.resize(text.size() - 2);
  return fmt::format("{},\n  \"documents\": {}\n}}\n", text, json_text(documents));
}

Result<QualityBaseline> parse_baseline(std::string_view text) {
  LLM_TRY(const Json json, parse_json_object(text));
  const JsonMembers members(json, "");
  LLM_RETURN_IF_ERROR(members.format(kFormat));
  QualityBaseline b;
  LLM_TRY(b.implementation, members.text("implementation"));
  LLM_TRY(b.origin, read_origin(members));
  LLM_TRY(b.tokens_sha256, members.text("tokens_sha256"));
  LLM_TRY(b.perplexity, members.amount("perplexity"));
  LLM_TRY(b.repetition, members.amount("repetition"));
  LLM_TRY(b.distinct2, members.amount("distinct2"));
  LLM_TRY(b.distinct3, members.amount("distinct3"));
  LLM_TRY(const Json* config, members.object("config"));
  LLM_TRY(b.config.seed, JsonMembers(*config, "config").count("seed", 0, INT64_MAX));
  return b;
}

Result<DocumentBaseline> parse_document_baseline(std::string_view text) {
  LLM_TRY(const Json json, parse_json_object(text));
  const JsonMembers members(json, "");
  LLM_RETURN_IF_ERROR(members.format(kDocumentFormat));
  DocumentBaseline b;
  LLM_TRY(b.origin, read_origin(members));
  LLM_TRY(b.seed, members.count("seed", 0, INT64_MAX));
  LLM_TRY(const Json* documents, members.array("documents", std::nullopt));
  for (const Json& pair : *documents) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number() ||
        !pair[1].is_number_unsigned())
      return malformed_json("documents", shown_json(pair), "a sum of nll and a number of tokens");
    b.documents.push_back({pair[0].get<double>(), pair[1].get<std::size_t>()});
  }
  return b;
}

std::vector<CheckResult> check_against(const QualityResult& r, const std::string& model_sha256,
                                       const QualityBaseline& b) {
  std::vector<CheckResult> checks = {
      gate(r.name, "perplexity", r.perplexity, b.perplexity,
           std::abs(r.perplexity - b.perplexity) <= kPerplexityGate * b.perplexity, "within 5 %"),
      gate(r.name, "repetition", r.repetition, b.repetition,
           r.repetition <= b.repetition * (1 + kTextGate), "at most 10 % more"),
      gate(r.name, "distinct-2", r.distinct2, b.distinct2,
           r.distinct2 >= b.distinct2 * (1 - kTextGate), "at most 10 % less"),
      gate(r.name, "distinct-3", r.distinct3, b.distinct3,
           r.distinct3 >= b.distinct3 * (1 - kTextGate), "at most 10 % less"),
      gate(r.name, "consistency", r.consistency, 1, r.consistency == 1, "exactly")};
  if (model_sha256 == b.origin.model_sha256 && r.name == b.implementation) {
    checks.push_back({r.name + ": the baseline's tokens", tokens_hash(r) == b.tokens_sha256,
                      "the same model must give the same tokens"});
  }
  return checks;
}

Result<CheckResult> check_documents(const std::shared_ptr<const Model>& model,
                                    std::string_view text, const DocumentBaseline& baseline,
                                    const Progress& progress) {
  const std::size_t n_documents = split_documents(text).size();
  if (n_documents != baseline.documents.size()) {
    return Error{ErrorCode::kIntegrity, "documents",
                 fmt::format("found {} in the baseline, need {}, the text's",
                             baseline.documents.size(), n_documents)};
  }
  const double limit = std::log1p(kLossGate);
  DocumentGate gate;
  const auto enough = [&](std::span<const DocumentScore> scores) {
    gate = document_gate(scores, baseline.documents, limit);
    return gate.verdict != Verdict::kUndecided;
  };
  LLM_RETURN_IF_ERROR(score_documents(model, text, baseline.seed, enough, progress));
  return CheckResult{.name = "documents: likelihoods compared with the baseline",
                     .passed = gate.verdict == Verdict::kPass,
                     .detail = document_detail(gate, n_documents),
                     .undecided = gate.verdict == Verdict::kUndecided};
}

}  // namespace llm
