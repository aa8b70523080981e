#include "validate/quality/baseline.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "validate/quality/signals.h"

namespace llm {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kFormat = "llmcheck-quality/1";
constexpr double kPerplexityGate = 0.05;
constexpr double kTextGate = 0.10;
constexpr double kPairedGate = 0.002;
// nll is stored rounded; a difference below that is none.
constexpr double kStoredStep = 1e-6;

Error malformed(const std::string& key, std::string rule) {
  return Error{.code = ErrorCode::kMalformed, .field = key, .message = std::move(rule)};
}

Status read(const Json& json, const char* key, std::string& out) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) return malformed(key, "need a string");
  out = found->get<std::string>();
  return Ok{};
}

template <typename T>
Status read(const Json& json, const char* key, T& out) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number() || found->template get<double>() < 0)
    return malformed(key, "need a number that is 0 or more");
  out = found->template get<T>();
  return Ok{};
}

CheckResult gate(const std::string& name, const char* signal, double value, double baseline,
                 bool passed, const std::string& rule) {
  return {fmt::format("{}: {}", name, signal), passed,
          fmt::format("{:.6g}, baseline {:.6g}, {}", value, baseline, rule)};
}

CheckResult paired(const QualityResult& result, const QualityBaseline& baseline) {
  const std::string name = result.name + ": paired likelihoods";
  if (result.nll.size() != baseline.nll.size()) {
    return {name, false,
            fmt::format("{} tokens, baseline {}", result.nll.size(), baseline.nll.size())};
  }
  std::vector<double> differences;
  for (std::size_t i = 0; i < result.nll.size(); ++i) {
    const double d = result.nll[i] - baseline.nll[i];
    differences.push_back(std::abs(d) < kStoredStep ? 0 : d);
  }
  const PairedGate gate = paired_gate(differences, std::log(1 + kPairedGate), baseline.config.seed);
  const char* verdict = gate.verdict == GateVerdict::kPass   ? "no loss above 0.2 %"
                        : gate.verdict == GateVerdict::kFail ? "a loss above 0.2 %"
                                                             : "INCONCLUSIVE, needs more text";
  return {name, gate.verdict != GateVerdict::kFail && std::isfinite(gate.mean),
          fmt::format("{}: perplexity {:+.3f} % ({:+.3f} to {:+.3f})", verdict,
                      std::expm1(gate.mean) * 100, std::expm1(gate.lower) * 100,
                      std::expm1(gate.upper) * 100)};
}

}  // namespace

QualityBaseline make_baseline(const QualityResult& result, const QualityConfig& config) {
  QualityBaseline b;
  b.implementation = result.name;
  b.tokens_sha256 = tokens_hash(result);
  b.config = config;
  b.perplexity = result.perplexity;
  b.repetition = result.repetition;
  b.distinct2 = result.distinct2;
  b.distinct3 = result.distinct3;
  b.consistency = result.consistency;
  for (const double nll : result.nll) b.nll.push_back(std::round(nll * 1e6) / 1e6);
  return b;
}

std::string baseline_json(const QualityBaseline& b) {
  const QualityConfig& c = b.config;
  const Json json = {{"format", kFormat},
                     {"implementation", b.implementation},
                     {"model_sha256", b.model_sha256},
                     {"text_sha256", b.text_sha256},
                     {"tokens_sha256", b.tokens_sha256},
                     {"engine_version", b.engine_version},
                     {"timestamp", b.timestamp},
                     {"reason", b.reason},
                     {"config",
                      {{"prompts", c.prompts},
                       {"prompt_tokens", c.prompt_tokens},
                       {"new_tokens", c.new_tokens},
                       {"runs", c.runs},
                       {"windows", c.windows},
                       {"window_tokens", c.window_tokens},
                       {"temperature", c.temperature},
                       {"seed", c.seed}}},
                     {"perplexity", b.perplexity},
                     {"repetition", b.repetition},
                     {"distinct2", b.distinct2},
                     {"distinct3", b.distinct3},
                     {"consistency", b.consistency}};
  // One figure a line would be 1600 lines.
  std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  text.resize(text.size() - 2);
  return fmt::format("{},\n  \"nll\": {}\n}}\n", text, Json(b.nll).dump());
}

Result<QualityBaseline> parse_baseline(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return malformed("baseline", "need a JSON object");
  QualityBaseline b;
  std::string format;
  LLM_RETURN_IF_ERROR(read(json, "format", format));
  if (format != kFormat) return malformed("format", fmt::format("need \"{}\"", kFormat));
  LLM_RETURN_IF_ERROR(read(json, "implementation", b.implementation));
  LLM_RETURN_IF_ERROR(read(json, "model_sha256", b.model_sha256));
  LLM_RETURN_IF_ERROR(read(json, "text_sha256", b.text_sha256));
  LLM_RETURN_IF_ERROR(read(json, "tokens_sha256", b.tokens_sha256));
  LLM_RETURN_IF_ERROR(read(json, "perplexity", b.perplexity));
  LLM_RETURN_IF_ERROR(read(json, "repetition", b.repetition));
  LLM_RETURN_IF_ERROR(read(json, "distinct2", b.distinct2));
  LLM_RETURN_IF_ERROR(read(json, "distinct3", b.distinct3));
  const auto config = json.find("config");
  if (config == json.end() || !config->is_object()) return malformed("config", "need an object");
  LLM_RETURN_IF_ERROR(read(*config, "seed", b.config.seed));
  const auto nll = json.find("nll");
  if (nll == json.end() || !nll->is_array()) return malformed("nll", "need an array");
  for (const Json& value : *nll) {
    if (!value.is_number()) return malformed("nll", "need numbers");
    b.nll.push_back(value.get<double>());
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
      gate(r.name, "consistency", r.consistency, 1, r.consistency == 1, "exactly"),
      paired(r, b)};
  if (model_sha256 == b.model_sha256 && r.name == b.implementation) {
    checks.push_back({r.name + ": the baseline's tokens", tokens_hash(r) == b.tokens_sha256,
                      "the same model must give the same tokens"});
  }
  return checks;
}

}  // namespace llm
