#include "engine/forward/delta_net.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/state/delta_state.h"
#include "quant/numerics/delta_net.h"

namespace llm {

Result<DeltaNet> DeltaNet::create(const Model& model, const PassSizes& sizes) {
  DeltaNet part;
  LLM_TRY(part.convolution_, Convolution::create(model, LayerPart::kStates));
  const HyperParameters& config = model.config();
  const auto allocate = [&](std::size_t (LayerSpec::*features)() const) {
    return allocate_activations(sizes.max_batch * config.most(features));
  };
  LLM_TRY(part.qkv_, allocate(&LayerSpec::delta_channels));
  LLM_TRY(part.conv_, allocate(&LayerSpec::delta_channels));
  LLM_TRY(part.z_, allocate(&LayerSpec::delta_v_rows));
  LLM_TRY(part.beta_, allocate(&LayerSpec::delta_v_heads));
  LLM_TRY(part.alpha_, allocate(&LayerSpec::delta_v_heads));
  LLM_TRY(part.delta_, allocate(&LayerSpec::delta_v_rows));
  return part;
}

void DeltaNet::run(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec) {
  const LayerWeights& w = at.weights().layers[layer];
  const InputRows normed =
      spec.is_mamba ? at.norm_rows(w.attn_norm.span(), {&w.attn_qkv, &w.attn_gate, &w.ssm_alpha})
                    : at.norm_rows(w.attn_norm.span(),
                                   {&w.attn_qkv, &w.attn_gate, &w.ssm_beta, &w.ssm_alpha});
  at.tap(layer, "attn_norm", normed.f32, normed.features);
  multiply(at, layer, spec, normed);
  at.tap(layer, "qkv", qkv_.data(), spec.channels());
  at.tap(layer, "z", z_.data(), spec.v_rows());
  if (!spec.is_mamba) at.tap(layer, "beta", beta_.data(), spec.n_v_heads);
  at.tap(layer, "alpha", alpha_.data(), spec.n_v_heads);

  const std::size_t n_qk = 2 * spec.n_k_heads;
  const std::size_t n_heads = n_qk + spec.n_v_heads;
  at.run_tasks(n_heads, [&](std::size_t i) {
    const std::size_t width = i < n_qk ? spec.k_dim : spec.v_dim;
    const std::size_t begin = i < n_qk ? std::min(spec.first_q(), spec.first_k()) + i * spec.k_dim
                                       : spec.first_v() + (i - n_qk) * spec.v_dim;
    convolution_.run(at, layer, {begin, begin + width}, qkv_.data(), conv_.data());
    if (!at.has_probe()) prepare(at, layer, spec, i);
  });
  if (at.has_probe()) {
    at.tap(layer, "qkv_conv", conv_.data(), spec.channels());
    at.run_tasks(n_heads, [&](std::size_t i) { prepare(at, layer, spec, i); });
  }
  const std::span<const SequenceRows> sequences = convolution_.sequences();
  const std::size_t n_tasks = sequences.size() * spec.n_v_heads;
  at.run_tasks(n_tasks, [&](std::size_t i) {
    const SequenceRows& of = sequences[i / spec.n_v_heads];
    change_state(at, layer, spec, of, i % spec.n_v_heads);
    if (!at.has_probe() && !spec.is_mamba) gate(at, layer, spec, of, i % spec.n_v_heads);
  });
  at.tap(layer, "delta", delta_.data(), spec.v_rows());
  if (spec.is_mamba) {
    at.run_tasks(at.rows().size(), [&](std::size_t t) { gate_row(at, layer, spec, t); });
    at.tap(layer, "delta_norm", z_.data(), spec.v_rows());
  } else if (at.has_probe()) {
    at.run_tasks(n_tasks, [&](std::size_t i) {
      gate(at, layer, spec, sequences[i / spec.n_v_heads], i % spec.n_v_heads);
    });
    at.tap(layer, "delta_norm", z_.data(), spec.v_rows());
  }
  const InputRows input = at.load_rows(PassOp::kDeltaNet, z_.data(), spec.v_rows(), {&w.ssm_out});
  at.add_product(PassOp::kAttnOutput, w.ssm_out, input, w.attn_post_norm.span(), layer,
                 {"attn_out", "attn_post"});
  at.tap_residual(layer, "ffn_inp");
}

void DeltaNet::multiply(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec,
                        const InputRows& input) {
  const LayerWeights& w = at.weights().layers[layer];
  struct Product {
    const PackedMatrix& w;
    float* y;
    RowTasks tasks;
  };
  const auto product = [&](const PackedMatrix& m, float* y) {
    return Product{m, y, at.tasks_of(m, input.n)};
  };
  const std::array all = {product(w.attn_qkv, qkv_.data()), product(w.attn_gate, z_.data()),
                          product(w.ssm_alpha, alpha_.data()),
                          product(spec.is_mamba ? w.ssm_alpha : w.ssm_beta, beta_.data())};
  const auto products = std::span(all).first(spec.is_mamba ? 3 : 4);
  std::size_t n_tasks = 0;
  for (const Product& p : products) n_tasks += p.tasks.size();
  at.run_tasks(n_tasks, [&](std::size_t i) {
    const auto* p = products.data();
    for (; i >= p->tasks.size(); ++p) i -= p->tasks.size();
    at.product(PassOp::kQkv, p->w, p->tasks[i], input, p->y);
  });
}

void DeltaNet::prepare(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec, std::size_t i) {
  const LayerWeights& w = at.weights().layers[layer];
  const std::size_t n_qk = 2 * spec.n_k_heads;
  const std::size_t head = i < n_qk ? i : i - n_qk;
  const float factor = i < spec.n_k_heads
                           ? static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.k_dim)))
                           : 1.0F;
  for (std::size_t t = 0; t < at.rows().size(); ++t) {
    if (i < n_qk && spec.is_mamba) break;
    if (i < n_qk) {
      float* const x = conv_.data() + t * spec.channels() + head * spec.k_dim;
      at.kernels().unit_length(x, spec.k_dim, factor);
    } else {
      const std::size_t place = t * spec.n_v_heads + head;
      if (spec.is_mamba) beta_[place] = contract::delta_step(alpha_[place], w.ssm_dt[head]);
      alpha_[place] = contract::delta_decay(alpha_[place], w.ssm_dt[head], w.ssm_a[head]);
      if (!spec.is_mamba) beta_[place] = contract::delta_beta(beta_[place]);
    }
  }
  at.lap(PassOp::kDeltaNet);
}

void DeltaNet::change_state(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec,
                            const SequenceRows& of, std::size_t head) {
  const DeltaState state(spec, of.state->state(layer));
  const float past = spec.is_mamba ? at.weights().layers[layer].ssm_d[head] : 0.0F;
  for (std::size_t panel = 0; panel < DeltaState::n_panels(spec); ++panel) {
    const std::size_t column = panel * DeltaState::kColumns;
    float* const values = state.panel(head, panel);
    /// Rows [begin, end) of the sequence.
    const auto change = [&](std::size_t begin, std::size_t end) {
      const std::size_t row = of.first_row + begin;
      const float* const conv = conv_.data() + row * spec.channels();
      const std::size_t of_head = spec.k_head_of(head) * spec.k_dim;
      at.kernels().delta_rule(
          {.q = conv + spec.first_q() + of_head,
           .k = conv + spec.first_k() + of_head,
           .v = conv + spec.first_v() + head * spec.v_dim + column,
           .stride = spec.channels(),
           .decay = alpha_.data() + row * spec.n_v_heads + head,
           .beta = beta_.data() + row * spec.n_v_heads + head,
           .gate_stride = spec.n_v_heads,
           .state = values,
           .out = delta_.data() + row * spec.v_rows() + head * spec.v_dim + column,
           .out_stride = spec.v_rows(),
           .k_dim = spec.k_dim,
           .n_columns = std::min(DeltaState::kColumns, spec.v_dim - column),
           .n_tokens = end - begin,
           .finds = !spec.is_mamba,
           .past = past});
    };
    std::size_t begin = 0;
    for (std::size_t copy = 0; copy < of.state->n_copies(); ++copy) {
      const std::size_t end = of.rows_to_copy(copy);
      change(begin, end);
      std::copy_n(values, spec.k_dim * DeltaState::kColumns,
                  DeltaState(spec, of.state->copied_state(copy, layer)).panel(head, panel));
      begin = end;
    }
    change(begin, of.n_rows);
  }
  at.lap(PassOp::kDeltaNet);
}

void DeltaNet::gate(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec,
                    const SequenceRows& of, std::size_t head) {
  const std::span<const float> norm = at.weights().layers[layer].ssm_norm.span();
  for (std::size_t t = of.first_row; t < of.first_row + of.n_rows; ++t) {
    const std::size_t place = t * spec.v_rows() + head * spec.v_dim;
    float* const x = delta_.data() + place;
    at.kernels().rms_norm(x, norm.data(), spec.v_dim, at.config().norm_eps, x);
    at.kernels().activate(Activation::kSwiGlu, z_.data() + place, x, spec.v_dim);
  }
  at.lap(PassOp::kDeltaNet);
}

void DeltaNet::gate_row(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec,
                        std::size_t t) {
  const std::span<const float> norm = at.weights().layers[layer].ssm_norm.span();
  float* const z = z_.data() + t * spec.v_rows();
  at.kernels().activate(Activation::kSwiGlu, z, delta_.data() + t * spec.v_rows(), spec.v_rows());
  for (std::size_t i = 0; i < spec.v_rows(); i += spec.norm_size())
    at.kernels().rms_norm(z + i, norm.data() + i, spec.norm_size(), at.config().norm_eps, z + i);
  at.lap(PassOp::kDeltaNet);
}

}  // namespace llm
