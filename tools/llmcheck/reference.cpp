#include "tools/llmcheck/reference.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tools/common/tool.h"
#include "validate/reference/diff/limits.h"
#include "validate/reference/gates/layer_check.h"

namespace llm {
namespace {

constexpr std::size_t kMaxLimitsBytes = std::size_t{1} << 30;

Status check_positions(const Dump& reference, const std::string& file) {
  for (std::size_t i = 0; i < reference.positions().size(); ++i) {
    if (reference.positions()[i] == static_cast<std::int32_t>(i)) continue;
    return in_file(
        Error{ErrorCode::kUnsupported, "positions",
              fmt::format("found {} at index {}, need 0, 1, 2, ...", reference.positions()[i], i)},
        file);
  }
  return Ok{};
}

/// The modes that the reference and --compute have in common.
Result<std::vector<ComputeMode>> choose_modes(const CheckArguments& a, const Dump& reference,
                                              const std::string& file) {
  std::vector<ComputeMode> modes;
  const auto possible = modes_for(reference.meta(), a.cache_for(Compute::kInt8));
  if (a.kv && std::ranges::find(possible, *a.kv, &ComputeMode::kv) == possible.end()) {
    return in_file(Error{ErrorCode::kUsage, "--kv",
                         fmt::format("found {}, need {}, which the reference has", kv_name(*a.kv),
                                     reference.meta().kv)},
                   file);
  }
  for (const ComputeMode mode : possible) {
    if (a.compute == CheckCompute::kInt8 && mode.compute != Compute::kInt8) continue;
    if (a.compute == CheckCompute::kF32 && mode.compute != Compute::kF32) continue;
    modes.push_back(mode);
  }
  if (!modes.empty()) return modes;
  return in_file(
      Error{ErrorCode::kUsage, "--compute",
            fmt::format("the reference computed in {}, need that mode", reference.meta().compute)},
      file);
}

/// What both begin with. @return the modes to compute in
Result<std::vector<ComputeMode>> begin(const CheckArguments& a, const Dump& reference,
                                       const std::string& file, Report& report) {
  LLM_RETURN_IF_ERROR(check_positions(reference, file));
  report.facts.emplace_back("reference",
                            fmt::format("{} ({} by {}, {} tokens)", file, reference.meta().oracle,
                                        reference.meta().producer, reference.tokens().size()));
  return choose_modes(a, reference, file);
}

}  // namespace

Status run_layer_diff(const CheckArguments& a, const Dump& reference, const LoadMode& load,
                      const std::string& sha256, ProgressBar& bar, Report& report) {
  LLM_TRY(const auto modes, begin(a, reference, a.layer_diff, report));
  Limits limits;
  if (!a.limits.empty()) {
    LLM_TRY(const std::string text, read_text_file(a.limits, kMaxLimitsBytes));
    auto parsed = parse_limits(text);
    if (!parsed.ok()) return in_file(std::move(parsed).error(), a.limits);
    limits = std::move(parsed).value();
  }
  for (const ComputeMode mode : modes) {
    LLM_TRY(const auto model, load(mode.compute));
    LayerCheckOptions options;
    options.model_sha256 = sha256;
    options.limits = a.limits.empty() ? nullptr : &limits;
    options.progress = std::ref(bar);
    auto sections = check_layers(model, mode, reference, options);
    bar.clear();
    if (!sections.ok()) return in_file(std::move(sections).error(), a.layer_diff);
    for (DiffSection& section : *sections) report.diffs.push_back(std::move(section));
  }
  if (judges_reference(report.diffs)) return Ok{};
  return Error{.code = ErrorCode::kMalformed,
               .field = "taps",
               .message = "found no op with its input and output, need one to judge int8 by",
               .file = a.layer_diff,
               .hint = "in f32 the logits alone can be judged"};
}

Status run_stages(const CheckArguments& a, const Dump& reference, const LoadMode& load,
                  const std::string& sha256, ProgressBar& bar, Report& report) {
  StagesOptions options;
  LLM_TRY(options.modes, begin(a, reference, a.stages, report));
  options.model_sha256 = sha256;
  options.progress = std::ref(bar);
  auto outcome = check_stages(load, reference, options);
  bar.clear();
  if (!outcome.ok()) return in_file(std::move(outcome).error(), a.stages);
  for (CheckResult& check : outcome->checks) report.checks.push_back(std::move(check));
  report.figures.push_back(std::move(outcome->table));
  for (std::string& line : outcome->not_covered) report.not_covered.push_back(std::move(line));
  return Ok{};
}

}  // namespace llm
