#include "engine/forward/short_conv.h"

namespace llm {

Result<ShortConv> ShortConv::create(const Model& model, const PassSizes& sizes) {
  ShortConv part;
  LLM_TRY(part.convolution_, Convolution::create(model, LayerPart::kShortConv));
  std::size_t n = 0;
  for (const LayerSpec& layer : model.config().layers)
    if (layer.has(LayerPart::kShortConv)) n = sizes.max_batch * layer.conv_channels();
  for (AlignedBuffer<float>* rows : {&part.b_, &part.c_, &part.x_}) {
    LLM_TRY(*rows, allocate_activations(n));
  }
  return part;
}

void ShortConv::run(PassWorker& at, std::size_t layer, const ShortConvSpec& spec) {
  const LayerWeights& w = at.weights().layers[layer];
  const std::size_t d_model = spec.d_model;
  /// to = to * by, of these channels of every row.
  const auto multiply = [&](AlignedBuffer<float>& to, const AlignedBuffer<float>& by,
                            Worker::Range channels) {
    for (std::size_t t = 0; t < at.rows().size(); ++t)
      for (std::size_t i = channels.begin; i < channels.end; ++i)
        to[t * d_model + i] *= by[t * d_model + i];
    at.lap(PassOp::kConvolution);
  };

  const InputRows normed = at.norm_rows(w.attn_norm.span(), {&w.conv_b, &w.conv_c, &w.conv_x});
  at.tap(layer, "attn_norm", normed.f32, normed.features);
  const RowTasks tasks = at.tasks_of(w.conv_b, normed.n);
  at.run_tasks(tasks.size(), [&](std::size_t i) {
    at.product(PassOp::kQkv, w.conv_b, tasks[i], normed, b_.data());
    at.product(PassOp::kQkv, w.conv_c, tasks[i], normed, c_.data());
    at.product(PassOp::kQkv, w.conv_x, tasks[i], normed, x_.data());
    if (at.has_probe()) return;
    multiply(x_, b_, tasks[i]);
    convolution_.run(at, layer, tasks[i], x_.data(), b_.data());
    multiply(b_, c_, tasks[i]);
  });
  if (at.has_probe()) {
    at.tap(layer, "conv_b", b_.data(), d_model);
    at.tap(layer, "conv_c", c_.data(), d_model);
    at.tap(layer, "conv_x", x_.data(), d_model);
    at.run_tasks(tasks.size(), [&](std::size_t i) { multiply(x_, b_, tasks[i]); });
    at.tap(layer, "conv_bx", x_.data(), d_model);
    at.run_tasks(tasks.size(), [&](std::size_t i) {
      convolution_.run(at, layer, tasks[i], x_.data(), b_.data());
    });
    at.tap(layer, "conv", b_.data(), d_model);
    at.run_tasks(tasks.size(), [&](std::size_t i) { multiply(b_, c_, tasks[i]); });
    at.tap(layer, "conv_gated", b_.data(), d_model);
  }
  const InputRows input = at.load_rows(PassOp::kConvolution, b_.data(), d_model, {&w.conv_out});
  at.add_product(PassOp::kAttnOutput, w.conv_out, input, w.attn_post_norm.span(), layer,
                 {"attn_out", "attn_post"});
  at.tap_residual(layer, "ffn_inp");
}

}  // namespace llm
