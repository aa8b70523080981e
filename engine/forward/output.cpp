#include "engine/forward/output.h"

#include <algorithm>

namespace llm {

void Output::run(PassWorker& at) {
  if (at.wanted_rows().empty()) return;
  const std::size_t first = at.wanted_rows()[0];
  const PackedMatrix& w = at.weights().output();
  const InputRows normed = at.norm_rows(at.weights().output_norm.span(), at.wanted_rows(), {&w});
  at.tap_outside("result_norm", normed.f32, normed.features, first);
  InputRows input = normed;
  input.n = at.n_logit_rows();
  float* const logits = at.wanted().data();
  float* const rest = logits + input.n * w.n_rows();
  const RowTasks tasks = at.tasks_of(w, input.n);
  const std::size_t n_tasks = input.n == 0 ? 0 : tasks.size();
  const float divisor = at.config().logit_divisor;
  at.run_tasks(n_tasks + normed.n - input.n, [&](std::size_t i) {
    if (i >= n_tasks) {  // a row that is wanted as it is
      const float* const row = normed.f32 + (input.n + i - n_tasks) * normed.features;
      std::copy_n(row, normed.features, rest + (i - n_tasks) * normed.features);
    } else {
      at.product(PassOp::kOutput, w, tasks[i], input, logits);
      for (std::size_t t = 0; t < input.n && divisor != 1.0F; ++t)
        for (std::size_t r = tasks[i].begin; r < tasks[i].end; ++r)
          logits[t * w.n_rows() + r] /= divisor;
    }
    at.lap(PassOp::kOutput);
  });
  if (input.n > 0) at.tap_outside("logits", logits, w.n_rows(), first);
}

}  // namespace llm
