#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tools/llmcheck/run.h"
#include "validate/reference/diff/limits.h"
#include "validate/reference/gates/layer_check.h"

namespace llm {
namespace {

constexpr std::size_t kMaxLimitsBytes = std::size_t{1} << 30;

/// The modes that the reference and --compute have in common.
Result<std::vector<ComputeMode>> choose_modes(const CheckArguments& a, const Dump& reference,
                                              const std::string& file) {
  std::vector<ComputeMode> modes;
  const auto possible = modes_for(reference.meta(), a.cache_for(Compute::kInt8));
  if (a.kv && std::ranges::find(possible, *a.kv, &ComputeMode::kv) == possible.end()) {
    return in_file(usage_error("--kv", fmt::format("found {}, need {}, which the reference has",
                                                   kv_name(*a.kv), reference.meta().kv)),
                   file);
  }
  for (const ComputeMode mode : possible) {
    if (a.compute == CheckCompute::kInt8 && mode.compute != Compute::kInt8) continue;
    if (a.compute == CheckCompute::kF32 && mode.compute != Compute::kF32) continue;
    modes.push_back(mode);
  }
  if (!modes.empty()) return modes;
  return in_file(
      usage_error("--compute", fmt::format("the reference computed in {}, need that mode",
                                           reference.meta().compute)),
      file);
}

/// What both begin with. @return the modes to compute in
Result<std::vector<ComputeMode>> begin(CheckRun& run, const Dump& reference,
                                       const std::string& file) {
  LLM_RETURN_IF_ERROR(in_file(check_positions(reference), file));
  run.fact("reference", fmt::format("{} ({} by {}, {} tokens)", file, reference.meta().oracle,
                                    reference.meta().producer, reference.tokens().size()));
  return choose_modes(run.a, reference, file);
}

}  // namespace

Status run_layer_diff(CheckRun& run, const Dump& reference) {
  const std::string& file = run.a.layer_diff;
  LLM_TRY(const auto modes, begin(run, reference, file));
  LayerCheckOptions options;
  options.model_sha256 = run.sha256;
  options.progress = std::ref(run.bar);
  Limits limits;
  if (!run.a.limits.empty()) {
    LLM_TRY(limits, parse_file(run.a.limits, kMaxLimitsBytes, parse_limits));
    options.limits = &limits;
  }
  for (const ComputeMode mode : modes) {
    LLM_TRY(const auto model, run.load(mode.compute));
    LLM_TRY(auto sections, run.ended(check_layers(model, mode, reference, options), file));
    for (DiffSection& section : sections) run.report.diffs.push_back(std::move(section));
  }
  if (judges_reference(run.report.diffs)) return Ok{};
  return Error{.code = ErrorCode::kMalformed,
               .field = "taps",
               .message = "found no operation with its input and output, need one to check int8",
               .file = file,
               .hint = "in f32 only the logits can be checked"};
}

Status run_stages(CheckRun& run, const Dump& reference) {
  StagesOptions options;
  LLM_TRY(options.modes, begin(run, reference, run.a.stages));
  options.model_sha256 = run.sha256;
  options.progress = std::ref(run.bar);
  LLM_TRY(auto outcome, run.ended(check_stages(run.loader(), reference, options), run.a.stages));
  run.add(std::move(outcome.checks));
  run.report.figures.push_back(std::move(outcome.table));
  for (std::string& line : outcome.not_covered) run.report.not_covered.push_back(std::move(line));
  return Ok{};
}

}  // namespace llm
