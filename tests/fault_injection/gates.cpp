// The checks themselves with faults.

#include "tests/fault_injection/fault.h"
#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/dump/engine_dump.h"
#include "validate/reference/fault_localization/op_check.h"

namespace llm::faults {

LLM_WRAP(judge_op, "_ZN3llm5judgeEiRKNS_3TapERKNS_8OpOutputE", LayerDiffRow, int layer,
         const Tap& tap, const OpOutput& output) {
  LayerDiffRow row = real_judge_op(layer, tap, output);
  if (row.verdict == TapVerdict::kFail && strikes("gate", {{"of", "ops"}}))
    row.verdict = TapVerdict::kPass;
  return row;
}

LLM_WRAP(apply_limits, "_ZN3llm12apply_limitsERNS_9LayerDiffERKNS_6LimitsE", void, LayerDiff& diff,
         const Limits& limits) {
  real_apply_limits(diff, limits);
  if (!strikes("gate", {{"of", "run"}}) && !strikes("gate", {{"of", "ops"}})) return;
  for (LayerDiffRow& row : diff.rows) row.verdict = TapVerdict::kPass;
  diff.first_failing.reset();
}

LLM_WRAP(op_on_reference,
         "_ZN3llm15op_on_referenceERKNS_6ReplayERKNS_4DumpEiRKNS_3TapESt4spanIKmLm"
         "18446744073709551615EE",
         Result<std::optional<OpOutput>>, const Replay& replay, const Dump& reference, int layer,
         const Tap& tap, TokenRows rows) {
  auto output = real_op_on_reference(replay, reference, layer, tap, rows);
  if (output.ok() && *output && strikes("gate", {{"of", "reference"}}))
    (*output)->expected = (*output)->actual;
  return output;
}

LLM_WRAP(op_of_run,
         "_ZN3llm9op_of_runERKNS_6ReplayERKNS_4DumpEiRKNS_3TapESt4spanIKmLm18446744073709551615EE",
         Result<std::optional<OpOutput>>, const Replay& replay, const Dump& run, int layer,
         const Tap& tap, TokenRows rows) {
  if (strikes("tap", {{"name", tap.name}})) return std::optional<OpOutput>();
  auto output = real_op_of_run(replay, run, layer, tap, rows);
  if (output.ok() && *output && strikes("gate", {{"of", "definition"}}))
    (*output)->expected = (*output)->actual;
  return output;
}

}  // namespace llm::faults
