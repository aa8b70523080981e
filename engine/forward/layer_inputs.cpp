#include "engine/forward/layer_inputs.h"

#include "quant/formats/dequantize.h"

namespace llm {

Result<LayerInputs> LayerInputs::create(const Model& model, const PassSizes& sizes) {
  LayerInputs part;
  const HyperParameters& config = model.config();
  LLM_TRY(part.inputs_, allocate_activations(sizes.max_batch * config.d_inputs));
  LLM_TRY(part.projected_, allocate_activations(sizes.max_batch * config.d_inputs));
  LLM_TRY(part.gate_, allocate_activations(sizes.max_batch * config.d_input()));
  const std::size_t row = row_bytes(model.weights().input_embd.type(), config.d_inputs);
  for (int i = 0; i < model.threads(); ++i) {
    LLM_TRY(auto bytes, AlignedBuffer<std::byte>::allocate(row, "workspace"));
    part.embedding_rows_.push_back(std::move(bytes));
  }
  return part;
}

void LayerInputs::prepare(PassWorker& at) {
  const std::size_t n = at.config().d_input();
  const std::size_t all = at.config().d_inputs;
  if (n == 0) return;
  const InputFactors factors = input_factors(at.config());
  const PackedMatrix& table = at.weights().input_embd;
  const std::span<std::byte> bytes = embedding_rows_[at.id()].span();
  at.run_tasks(at.rows().size(), [&](std::size_t t) {
    const std::span<float> row = inputs_.span().subspan(t * all, all);
    table.extract_row(static_cast<std::size_t>(at.rows()[t].token), bytes);
    contract::dequantize_row(table.type(), bytes, row);
    for (float& x : row) x *= factors.embedding;
    at.lap(PassOp::kEmbed);
  });
  at.tap_outside("pl_embd", inputs_.data(), all, 0);

  const PackedMatrix& w = at.weights().input_proj;
  const InputRows embedded =
      at.load_rows(PassOp::kEmbed, at.residual(0).data(), at.config().d_model, {&w});
  const RowTasks tasks = at.tasks_of(w, embedded.n);
  at.run_tasks(tasks.size(), [&](std::size_t i) {
    at.product(PassOp::kEmbed, w, tasks[i], embedded, projected_.data());
  });
  at.tap_outside("pl_proj", projected_.data(), all, 0);

  const std::size_t n_layers = all / n;
  at.run_tasks(at.rows().size() * n_layers, [&](std::size_t i) {
    float* const projected = projected_.data() + i * n;
    for (std::size_t j = 0; j < n; ++j) projected[j] *= factors.projection;
    at.kernels().rms_norm(projected, at.weights().input_norm.data(), n, at.config().norm_eps,
                          projected);
    float* const input = inputs_.data() + i * n;
    for (std::size_t j = 0; j < n; ++j) input[j] = (projected[j] + input[j]) * factors.sum;
    at.lap(PassOp::kEmbed);
  });
  at.tap_outside("pl_inputs", inputs_.data(), all, 0);
}

void LayerInputs::run(PassWorker& at, std::size_t layer) {
  const LayerSpec& spec = at.config().layers[layer];
  if (spec.d_input > 0) add_inputs(at, layer);
  if (!spec.has_output_scale) return;
  at.scale_residual(at.weights().layers[layer].out_scale[0]);
  at.tap_residual(layer, "l_scaled");
}

void LayerInputs::add_inputs(PassWorker& at, std::size_t layer) {
  const LayerWeights& w = at.weights().layers[layer];
  const std::size_t n = at.config().d_input();
  const InputRows stream =
      at.load_rows(PassOp::kNorm, at.residual(0).data(), at.config().d_model, {&w.inp_gate});
  const RowTasks tasks = at.tasks_of(w.inp_gate, stream.n);
  const auto activate_columns = [&](Worker::Range columns) {
    for (std::size_t t = 0; t < stream.n; ++t) {
      const float* const input = inputs_.data() + t * at.config().d_inputs + layer * n;
      at.kernels().activate(at.config().layers[layer].ffns[0].activation,
                            gate_.data() + t * n + columns.begin, input + columns.begin,
                            columns.end - columns.begin);
    }
    at.lap(PassOp::kActivation);
  };
  at.run_tasks(tasks.size(), [&](std::size_t i) {
    at.product(PassOp::kGateUp, w.inp_gate, tasks[i], stream, gate_.data());
    if (!at.has_probe()) activate_columns(tasks[i]);
  });
  if (at.has_probe()) {
    at.tap(layer, "pl_gate", gate_.data(), n);
    at.run_tasks(tasks.size(), [&](std::size_t i) { activate_columns(tasks[i]); });
  }
  at.tap(layer, "pl_act", gate_.data(), n);
  const InputRows active = at.load_rows(PassOp::kNorm, gate_.data(), n, {&w.inp_proj});
  at.add_product(PassOp::kFfnDown, w.inp_proj, active, w.inp_post_norm.span(), layer,
                 {"pl_out", "pl_post"});
  at.tap_residual(layer, "pl_sum");
}

}  // namespace llm
