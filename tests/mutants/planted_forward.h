#ifndef LLM_TESTS_MUTANTS_PLANTED_FORWARD_H_
#define LLM_TESTS_MUTANTS_PLANTED_FORWARD_H_

#include <string_view>

#include "tests/mutants/planted_codes.h"

namespace llm {
namespace {

/// Runs tasks as Forward::run_tasks does, or with a wait missing at the end: in shares then,
/// because what deals tasks out counts on the wait.
template <class Wait, class Team, class Task>
void planted_tasks(bool without_wait, Wait wait, Team worker, std::size_t n, Task task) {
  if (!without_wait) {
    worker.take_tasks(n, task);
    return wait();
  }
  const auto [begin, end] = worker.share(n);
  for (std::size_t i = begin; i < end; ++i) task(i);
}

/// Faults of the fast forward pass: what an op gave, named as its tap, made wrong before the next
/// op reads it. Every worker of the region calls it.
template <class Pass, class Team>
void planted_spoil_rows(const Pass& pass, Team worker, int layer, std::string_view op,
                        float* values, std::size_t features, PlantedValue compute,
                        PlantedValue isa) {
  static const PlantedSite site("forward");
  if (!site.on()) return;
  const bool is_logits = op == "logits";
  const std::size_t n = is_logits ? pass.logit_rows.size() : pass.rows.size();
  PlantedFault fault;
  if (!site.bind({{"op", op.data()},
                  {"layer", layer},
                  {"threads", worker.count},
                  {"rows", pass.rows.size()},
                  {"probe", pass.probe != nullptr},
                  compute,
                  isa},
                 fault)) {
    return;
  }
  worker.barrier();
  for (std::size_t i = worker.id == 0 ? n : 0; i-- > 0;) {
    const std::size_t row = is_logits ? pass.logit_rows[i] : i;
    const std::size_t position = pass.rows[row].position;
    if (!fault.holds({{"position", position}, {"row", row}, {"rows_after", n - 1 - i}})) continue;
    float* out = values + i * features;
    const auto put = [&](std::size_t k, float wrong) {
      if (planted_differ(out[k], wrong)) site.trace();
      out[k] = wrong;
    };
    if (fault.is("ulp")) put(features - 1, planted_ulp(out[features - 1]));
    if (fault.is("zero")) put(features - 1, 0);
    if (fault.is("sign")) put(0, -out[0]);
    for (std::size_t k = 0; k < features; ++k) {
      if (fault.is("tail") && k + 16 >= features) put(k, 0);
      if (fault.is("row_before") && i > 0) put(k, values[(i - 1) * features + k]);
    }
  }
  worker.barrier();
}

/// Faults of a bias: the rows `own` of y = W x + b of each token, made wrong behind the addition.
template <class Bias, class Range>
void planted_spoil_bias(PlantedValues known, Bias bias, Range own, float* y, std::size_t tokens) {
  static const PlantedSite site("bias");
  PlantedFault fault;
  if (!site.on() || bias.empty() || !site.bind(known, fault)) return;
  const std::size_t n = bias.size();
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t r = own.begin; r < own.end; ++r) {
      if (!fault.holds({{"row", r},
                        {"rows_after", n - 1 - r},
                        {"share_row", r - own.begin},
                        {"token", t},
                        {"tokens_after", tokens - 1 - t}})) {
        continue;
      }
      float& out = y[t * n + r];
      const float right = out;
      if (fault.is("dropped")) out -= bias[r];
      if (fault.is("twice")) out += bias[r];
      if (fault.is("next")) out += bias[r + 1 < n ? r + 1 : 0] - bias[r];
      if (fault.is("ulp")) out = planted_ulp(out);
      if (planted_differ(out, right)) site.trace();
    }
  }
}

}  // namespace
}  // namespace llm

#endif  // LLM_TESTS_MUTANTS_PLANTED_FORWARD_H_
