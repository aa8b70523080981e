#include "engine/forward/feed_forward.h"

namespace llm {

Result<FeedForward> FeedForward::create(const Model& model, const PassSizes& sizes) {
  FeedForward part;
  LLM_TRY(part.gate_,
          allocate_activations(sizes.max_batch * model.config().most(&LayerSpec::d_ff)));
  LLM_TRY(part.up_, allocate_activations(sizes.max_batch * model.config().most(&LayerSpec::d_ff)));
  return part;
}

void FeedForward::run(PassWorker& at, std::size_t layer, const FfnSpec& spec) {
  const LayerWeights& w = at.weights().layers[layer];
  const std::size_t d_ff = spec.d_ff;

  const InputRows normed = at.norm_rows(w.ffn_norm.span(), {&w.ffn_gate, &w.ffn_up});
  if (!w.ffn_norm.span().empty()) at.tap(layer, "ffn_norm", normed.f32, normed.features);
  const RowTasks tasks = at.tasks_of(w.ffn_gate, normed.n);
  const auto activate_columns = [&](Worker::Range columns) {
    for (std::size_t t = 0; t < normed.n; ++t) {
      const std::size_t begin = t * d_ff + columns.begin;
      at.kernels().activate(spec.activation, gate_.data() + begin, up_.data() + begin,
                            columns.end - columns.begin);
    }
    at.lap(PassOp::kActivation);
  };
  at.run_tasks(tasks.size(), [&](std::size_t i) {
    at.product(PassOp::kGateUp, w.ffn_gate, tasks[i], normed, gate_.data());
    at.product(PassOp::kGateUp, w.ffn_up, tasks[i], normed, up_.data());
    if (!at.has_probe()) activate_columns(tasks[i]);
  });
  if (at.has_probe()) {
    at.tap(layer, "gate", gate_.data(), d_ff);
    at.tap(layer, "up", up_.data(), d_ff);
    at.run_tasks(tasks.size(), [&](std::size_t i) { activate_columns(tasks[i]); });
  }
  at.tap(layer, "ffn_act", gate_.data(), d_ff);

  const InputRows active = at.load_rows(PassOp::kNorm, gate_.data(), d_ff, {&w.ffn_down});
  at.add_product(PassOp::kFfnDown, w.ffn_down, active, w.ffn_post_norm.span(), layer,
                 {"ffn_out", "ffn_post"});
  at.tap_residual(layer, "l_out");
}

}  // namespace llm
