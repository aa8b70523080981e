#include "validate/text/stages/stage_logits.h"

#include <algorithm>
#include <vector>

#include "validate/reference/diff/metrics.h"

namespace llm {
namespace {

constexpr double kUnits = 10;
/// Of a model whose weights take no codes: what rounding to f32 and to f16 may do.
constexpr double kLeastLimit = 1e-6;

Result<std::vector<float>> logits_of(const std::shared_ptr<const Model>& model, ComputeMode mode,
                                     std::span<const std::int32_t> tokens) {
  LLM_TRY(const auto in_mode, model->with_compute(mode.compute));
  ExecutorOptions options;
  options.kv = mode.kv;
  options.context = tokens.size();
  LLM_TRY(const auto session, open_sequence(in_mode, options));
  const std::vector<TokenId> ids(tokens.begin(), tokens.end());
  LLM_TRY(const auto logits, session->evaluate(ids, LogitRows::kAll));
  return std::vector<float>(logits.begin(), logits.end());
}

}  // namespace

Result<std::optional<StageLogits>> check_logits(const std::shared_ptr<const Model>& model,
                                                ComputeMode mode, const Dump& reference) {
  if (!reference.has(ProbeSink::kGlobal, "logits")) return std::optional<StageLogits>();
  LLM_TRY(const TapMatrix expected, reference.tap(ProbeSink::kGlobal, "logits"));
  LLM_TRY(const auto rounded, logits_of(model, mode, reference.tokens()));
  LLM_TRY(const auto exact, logits_of(model, {Compute::kF32, KvType::kF32}, reference.tokens()));
  StageLogits out;
  if (rounded.size() != expected.values.size()) return std::optional<StageLogits>();
  out.error = nmse(rounded, expected.values);
  out.limit = std::max(kLeastLimit, kUnits * nmse(rounded, exact));
  out.noise = max_abs_difference(rounded, exact);
  return std::optional(out);
}

}  // namespace llm
