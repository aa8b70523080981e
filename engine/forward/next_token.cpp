#include "engine/forward/next_token.h"

namespace llm {

Result<NextTokenInput> NextTokenInput::create(const Model& model, const PassSizes& sizes) {
  NextTokenInput part;
  const HyperParameters& config = model.config();
  const std::size_t n_inputs = config.most(&LayerSpec::n_inputs);
  LLM_TRY(part.input_, allocate_activations(sizes.max_batch * n_inputs * config.d_model));
  return part;
}

void NextTokenInput::run(PassWorker& at) {
  if (input_.size() == 0) return;
  const LayerWeights& w = at.weights().layers[0];
  const std::size_t n = at.config().d_model;
  at.run_tasks(at.rows().size(), [&](std::size_t t) {
    const PassRow& row = at.rows()[t];
    const float* const hidden =
        row.segment->hidden + (row.position - row.segment->first_position) * n;
    float* const to = input_.data() + t * 2 * n;
    const auto norm = [&](const float* x, const AlignedBuffer<float>& weight, float* y) {
      at.kernels().rms_norm(x, weight.data(), n, at.config().norm_eps, y);
    };
    norm(at.residual(t).data(), w.enorm, to);
    norm(hidden, w.hnorm, to + n);
    at.lap(PassOp::kEmbed);
  });
  const InputRows input = at.load_rows(PassOp::kEmbed, input_.data(), 2 * n, {&w.eh_proj});
  const RowTasks tasks = at.tasks_of(w.eh_proj, input.n);
  at.run_tasks(tasks.size(), [&](std::size_t i) {
    at.product(PassOp::kEmbed, w.eh_proj, tasks[i], input, at.residual(0).data());
  });
}

}  // namespace llm
