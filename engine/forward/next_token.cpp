#include "engine/forward/next_token.h"

#include <algorithm>

#include "quant/formats/dequantize.h"

namespace llm {

Result<NextTokenInput> NextTokenInput::create(const Model& model, const PassSizes& sizes) {
  NextTokenInput part;
  const HyperParameters& config = model.config();
  const std::size_t n_inputs = config.most(&LayerSpec::n_inputs);
  LLM_TRY(part.input_, allocate_activations(sizes.max_batch *
                                            (n_inputs * config.d_model + config.d_trunk_input())));
  const PackedMatrix& table = model.weights().trunk_embd;
  for (int i = 0; i < model.threads() && config.has_trunk(); ++i) {
    LLM_TRY(auto bytes, AlignedBuffer<std::byte>::allocate(row_bytes(table.type(), table.n_cols()),
                                                           "workspace"));
    part.embedding_rows_.push_back(std::move(bytes));
  }
  return part;
}

void NextTokenInput::run(PassWorker& at) {
  if (input_.size() == 0) return;
  const LayerWeights& layer = at.weights().layers[0];
  const bool has_trunk = at.config().has_trunk();
  const PackedMatrix& w = has_trunk ? at.weights().from_trunk : layer.eh_proj;
  const std::size_t n = w.n_cols() / 2;
  at.run_tasks(at.rows().size(), [&](std::size_t t) {
    const PassRow& row = at.rows()[t];
    const float* const hidden =
        row.segment->hidden + (row.position - row.segment->first_position) * n;
    float* const to = input_.data() + t * 2 * n;
    const auto norm = [&](const float* x, const AlignedBuffer<float>& weight, float* y) {
      at.kernels().rms_norm(x, weight.data(), n, at.config().norm_eps, y);
    };
    if (has_trunk) {
      embed(at, row.token, {to, n});
      std::copy_n(hidden, n, to + n);
    } else {
      norm(at.residual(t).data(), layer.enorm, to);
      norm(hidden, layer.hnorm, to + n);
    }
    at.lap(PassOp::kEmbed);
  });
  const InputRows input = at.load_rows(PassOp::kEmbed, input_.data(), 2 * n, {&w});
  const RowTasks tasks = at.tasks_of(w, input.n);
  at.run_tasks(tasks.size(), [&](std::size_t i) {
    at.product(PassOp::kEmbed, w, tasks[i], input, at.residual(0).data());
  });
}

void NextTokenInput::embed(PassWorker& at, TokenId token, std::span<float> to) {
  const PackedMatrix& table = at.weights().trunk_embd;
  const std::span<std::byte> bytes = embedding_rows_[at.id()].span();
  table.extract_row(static_cast<std::size_t>(token), bytes);
  contract::dequantize_row(table.type(), bytes, to);
  for (float& x : to) x *= at.config().trunk_embedding_scale;
}

}  // namespace llm
