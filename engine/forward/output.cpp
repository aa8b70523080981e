#include "engine/forward/output.h"

namespace llm {

void Output::run(PassWorker& at) {
  if (at.logit_rows().empty()) return;
  const std::size_t first = at.logit_rows()[0];
  const PackedMatrix& w = at.weights().output();
  float* const logits = at.logits().data();
  const InputRows normed = at.norm_rows(at.weights().output_norm.span(), at.logit_rows(), {&w});
  at.tap_outside("result_norm", normed.f32, normed.features, first);
  const RowTasks tasks = at.tasks_of(w, normed.n);
  const float divisor = at.config().logit_divisor;
  at.run_tasks(tasks.size(), [&](std::size_t i) {
    at.product(PassOp::kOutput, w, tasks[i], normed, logits);
    if (divisor == 1.0F) return;
    for (std::size_t t = 0; t < normed.n; ++t)
      for (std::size_t r = tasks[i].begin; r < tasks[i].end; ++r)
        logits[t * w.n_rows() + r] /= divisor;
    at.lap(PassOp::kOutput);
  });
  at.tap_outside("logits", logits, w.n_rows(), first);
}

}  // namespace llm
