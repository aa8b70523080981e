#include "engine/forward/delta_net.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "quant/numerics/delta_net.h"

namespace llm {

Result<DeltaNet> DeltaNet::create(const Model& model, const PassSizes& sizes) {
  DeltaNet part;
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
  for (std::size_t layer = 0; layer < config.n_layers; ++layer) {
    const std::span<const float> in_file = model.weights().layers[layer].ssm_conv1d.span();
    LLM_TRY(auto weights, allocate_activations(in_file.size()));
    const std::size_t width = config.layers[layer].conv_width();
    for (std::size_t i = 0; i < in_file.size(); ++i)
      weights[i % width * (in_file.size() / width) + i / width] = in_file[i];
    part.conv_weights_.push_back(std::move(weights));
  }
  return part;
}

void DeltaNet::plan(std::span<const PassSegment> segments) {
  runs_.clear();
  std::size_t row = 0;
  for (const PassSegment& segment : segments) {
    runs_.push_back({row, segment.tokens.size(), segment.first_position, segment.state});
    row += segment.tokens.size();
  }
}

void DeltaNet::run(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec) {
  const LayerWeights& w = at.weights().layers[layer];
  const InputRows normed =
      at.norm_rows(w.attn_norm.span(), {&w.attn_qkv, &w.attn_gate, &w.ssm_beta, &w.ssm_alpha});
  at.tap(layer, "attn_norm", normed.f32, normed.features);
  multiply(at, layer, normed);
  at.tap(layer, "qkv", qkv_.data(), spec.channels());
  at.tap(layer, "z", z_.data(), spec.v_rows());
  at.tap(layer, "beta", beta_.data(), spec.n_v_heads);
  at.tap(layer, "alpha", alpha_.data(), spec.n_v_heads);

  const std::size_t n_qk = 2 * spec.n_k_heads;
  const std::size_t n_heads = n_qk + spec.n_v_heads;
  at.run_tasks(n_heads, [&](std::size_t i) {
    const Channels channels =
        i < n_qk ? Channels{i * spec.k_dim, spec.k_dim}
                 : Channels{2 * spec.k_rows() + (i - n_qk) * spec.v_dim, spec.v_dim};
    convolve(at, layer, spec, channels);
    if (!at.has_probe()) prepare(at, layer, spec, i);
  });
  if (at.has_probe()) {
    at.tap(layer, "qkv_conv", conv_.data(), spec.channels());
    at.run_tasks(n_heads, [&](std::size_t i) { prepare(at, layer, spec, i); });
  }
  const std::size_t n_tasks = runs_.size() * spec.n_v_heads;
  at.run_tasks(n_tasks, [&](std::size_t i) {
    const Run& run = runs_[i / spec.n_v_heads];
    change_state(at, layer, spec, run, i % spec.n_v_heads);
    if (!at.has_probe()) gate(at, layer, spec, run, i % spec.n_v_heads);
  });
  if (at.has_probe()) {
    at.tap(layer, "delta", delta_.data(), spec.v_rows());
    at.run_tasks(n_tasks, [&](std::size_t i) {
      gate(at, layer, spec, runs_[i / spec.n_v_heads], i % spec.n_v_heads);
    });
    at.tap(layer, "delta_norm", z_.data(), spec.v_rows());
  }
  const InputRows input = at.load_rows(PassOp::kDeltaNet, z_.data(), spec.v_rows(), {&w.ssm_out});
  at.add_product(PassOp::kAttnOutput, w.ssm_out, input, w.attn_post_norm.span(), layer,
                 {"attn_out", "attn_post"});
  at.tap_residual(layer, "ffn_inp");
}

void DeltaNet::multiply(PassWorker& at, std::size_t layer, const InputRows& input) {
  const LayerWeights& w = at.weights().layers[layer];
  struct Product {
    const PackedMatrix& w;
    float* y;
    RowTasks tasks;
  };
  const auto product = [&](const PackedMatrix& m, float* y) {
    return Product{m, y, at.tasks_of(m, input.n)};
  };
  const std::array products = {product(w.attn_qkv, qkv_.data()), product(w.attn_gate, z_.data()),
                               product(w.ssm_beta, beta_.data()),
                               product(w.ssm_alpha, alpha_.data())};
  std::size_t n_tasks = 0;
  for (const Product& p : products) n_tasks += p.tasks.size();
  at.run_tasks(n_tasks, [&](std::size_t i) {
    const auto* p = products.data();
    for (; i >= p->tasks.size(); ++p) i -= p->tasks.size();
    at.product(PassOp::kQkv, p->w, p->tasks[i], input, p->y);
  });
}

void DeltaNet::convolve(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec,
                        Channels channels) {
  const std::size_t width = spec.conv_width;
  const std::size_t stride = spec.channels();
  std::array<const float*, 16> rows;  // Reader::kMaxConvWidth
  for (const Run& run : runs_) {
    const DeltaState state = state_of(run, layer, spec);
    /// Of these channels, what the convolution reads of row t of the run, or before it.
    const auto input = [&](std::size_t t, std::size_t age) -> const float* {
      return t >= age ? qkv_.data() + (run.first_row + t - age) * stride + channels.begin
                      : state.input(age - t).data() + channels.begin;
    };
    for (std::size_t t = 0; t < run.n_rows; ++t) {
      for (std::size_t j = 0; j < width; ++j) rows[j] = input(t, width - 1 - j);
      at.kernels().convolve({.rows = rows.data(),
                             .weights = conv_weights_[layer].data() + channels.begin,
                             .stride = stride,
                             .width = width,
                             .n = channels.n,
                             .y = conv_.data() + (run.first_row + t) * stride + channels.begin});
    }
    // From the oldest on: each comes from one that is younger, and not replaced yet.
    const auto keep = [&](std::size_t n_rows, const DeltaState& to) {
      for (std::size_t age = width - 1; age > 0; --age)
        std::copy_n(input(n_rows, age), channels.n, to.input(age).data() + channels.begin);
    };
    for (std::size_t copy = 0; copy < run.state->n_copies(); ++copy)
      keep(run.rows_to_copy(copy), copy_of(run, copy, layer, spec));
    keep(run.n_rows, state);
  }
  at.lap(PassOp::kDeltaNet);
}

void DeltaNet::prepare(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec, std::size_t i) {
  const LayerWeights& w = at.weights().layers[layer];
  const std::size_t n_qk = 2 * spec.n_k_heads;
  const std::size_t head = i < n_qk ? i : i - n_qk;
  const float factor = i < spec.n_k_heads
                           ? static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.k_dim)))
                           : 1.0F;
  for (std::size_t t = 0; t < at.rows().size(); ++t) {
    if (i < n_qk) {
      float* const x = conv_.data() + t * spec.channels() + head * spec.k_dim;
      at.kernels().unit_length(x, spec.k_dim, factor);
    } else {
      const std::size_t place = t * spec.n_v_heads + head;
      alpha_[place] = contract::delta_decay(alpha_[place], w.ssm_dt[head], w.ssm_a[head]);
      beta_[place] = contract::delta_beta(beta_[place]);
    }
  }
  at.lap(PassOp::kDeltaNet);
}

void DeltaNet::change_state(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec,
                            const Run& run, std::size_t head) {
  const DeltaState state = state_of(run, layer, spec);
  for (std::size_t panel = 0; panel < DeltaState::n_panels(spec); ++panel) {
    const std::size_t column = panel * DeltaState::kColumns;
    float* const values = state.panel(head, panel);
    /// Rows [begin, end) of the run.
    const auto change = [&](std::size_t begin, std::size_t end) {
      const std::size_t row = run.first_row + begin;
      const float* const conv = conv_.data() + row * spec.channels();
      const float* const q = conv + spec.k_head_of(head) * spec.k_dim;
      at.kernels().delta_rule(
          {.q = q,
           .k = q + spec.k_rows(),
           .v = conv + 2 * spec.k_rows() + head * spec.v_dim + column,
           .stride = spec.channels(),
           .decay = alpha_.data() + row * spec.n_v_heads + head,
           .beta = beta_.data() + row * spec.n_v_heads + head,
           .gate_stride = spec.n_v_heads,
           .state = values,
           .out = delta_.data() + row * spec.v_rows() + head * spec.v_dim + column,
           .out_stride = spec.v_rows(),
           .k_dim = spec.k_dim,
           .n_columns = std::min(DeltaState::kColumns, spec.v_dim - column),
           .n_tokens = end - begin});
    };
    std::size_t begin = 0;
    for (std::size_t copy = 0; copy < run.state->n_copies(); ++copy) {
      const std::size_t end = run.rows_to_copy(copy);
      change(begin, end);
      std::copy_n(values, spec.k_dim * DeltaState::kColumns,
                  copy_of(run, copy, layer, spec).panel(head, panel));
      begin = end;
    }
    change(begin, run.n_rows);
  }
  at.lap(PassOp::kDeltaNet);
}

void DeltaNet::gate(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec, const Run& run,
                    std::size_t head) {
  const std::span<const float> norm = at.weights().layers[layer].ssm_norm.span();
  for (std::size_t t = run.first_row; t < run.first_row + run.n_rows; ++t) {
    const std::size_t place = t * spec.v_rows() + head * spec.v_dim;
    float* const x = delta_.data() + place;
    at.kernels().rms_norm(x, norm.data(), spec.v_dim, at.config().norm_eps, x);
    at.kernels().activate(Activation::kSwiGlu, z_.data() + place, x, spec.v_dim);
  }
  at.lap(PassOp::kDeltaNet);
}

}  // namespace llm
