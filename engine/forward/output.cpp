#include "engine/forward/output.h"

#include <algorithm>

namespace llm {

void Output::run(PassWorker& at) {
  // Each on its own: together they may be more rows than a pass has.
  const std::span<const std::size_t> rows = at.wanted_rows();
  const std::size_t n = at.n_logit_rows();
  if (n > 0) run_logits(at, rows.first(n));
  if (n < rows.size()) run_norms(at, rows.subspan(n));
}

void Output::run_logits(PassWorker& at, std::span<const std::size_t> rows) {
  const PackedMatrix& w = at.weights().output();
  const InputRows input = at.norm_rows(at.weights().output_norm.span(), rows, {&w});
  at.tap_outside("result_norm", input.f32, input.features, rows[0]);
  float* const logits = at.wanted().data();
  const RowTasks tasks = at.tasks_of(w, input.n);
  const float divisor = at.config().logit_divisor;
  const float cap = at.config().logit_cap;
  at.run_tasks(tasks.size(), [&](std::size_t i) {
    at.product(PassOp::kOutput, w, tasks[i], input, logits);
    for (std::size_t t = 0; t < input.n && divisor != 1.0F; ++t)
      for (std::size_t r = tasks[i].begin; r < tasks[i].end; ++r)
        logits[t * w.n_rows() + r] /= divisor;
    for (std::size_t t = 0; t < input.n && cap > 0; ++t)
      at.kernels().soft_cap(logits + t * w.n_rows() + tasks[i].begin, tasks[i].end - tasks[i].begin,
                            cap);
    at.lap(PassOp::kOutput);
  });
  at.tap_outside("logits", logits, w.n_rows(), rows[0]);
}

void Output::run_norms(PassWorker& at, std::span<const std::size_t> rows) {
  const PackedMatrix& w = at.weights().to_trunk;
  const InputRows normed = at.norm_rows(at.weights().output_norm.span(), rows, {&w});
  if (at.n_logit_rows() == 0) at.tap_outside("result_norm", normed.f32, normed.features, rows[0]);
  float* const to = at.wanted().data() + at.n_logit_rows() * at.weights().output().n_rows();
  if (at.config().has_trunk()) {
    const RowTasks tasks = at.tasks_of(w, normed.n);
    return at.run_tasks(
        tasks.size(), [&](std::size_t i) { at.product(PassOp::kOutput, w, tasks[i], normed, to); });
  }
  at.run_tasks(rows.size(), [&](std::size_t i) {
    std::copy_n(normed.f32 + i * normed.features, normed.features, to + i * normed.features);
    at.lap(PassOp::kOutput);
  });
}

}  // namespace llm
