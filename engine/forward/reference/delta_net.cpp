#include "engine/forward/reference/delta_net.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "quant/formats/reference/by_fma.h"
#include "quant/numerics/delta_net.h"

namespace llm::reference {

using contract::LaneSum;

float convolve(std::span<const float> inputs, std::span<const float> weights,
               std::span<const float> bias, bool silu) {
  float sum = 0;
  for (std::size_t j = 0; j < inputs.size(); ++j) sum = std::fma(weights[j], inputs[j], sum);
  if (!bias.empty()) sum += bias[0];
  return silu ? contract::activate(Activation::kSwiGlu, sum, 1.0F) : sum;
}

void convolve(const ConvolutionSpec& spec, std::span<const float> x, std::span<const float> weights,
              std::span<const float> bias, const ConvTail& tail, std::span<float> y) {
  const std::size_t width = spec.width;
  std::vector<float> inputs(width);
  for (std::size_t c = 0; c < x.size(); ++c) {
    for (std::size_t age = 1; age < width; ++age) inputs[width - 1 - age] = tail.input(age)[c];
    inputs[width - 1] = x[c];
    y[c] = convolve(inputs, weights.subspan(c * width, width),
                    bias.empty() ? bias : bias.subspan(c, 1), spec.silu);
    for (std::size_t age = 1; age < width; ++age) tail.input(age)[c] = inputs[width - age];
  }
}

void unit_length(std::span<float> x, float factor) {
  LaneSum squares;
  for (std::size_t i = 0; i < x.size(); ++i) squares.add_product(i, x[i], x[i]);
  const float sum = squares.total();
  // sum - sum is 0, or NaN where the squares overflow.
  const float s = 1.0F / std::sqrt(sum + contract::kDeltaEps) + (sum - sum);
  for (float& value : x) value = (value * s) * factor;
}

float query_factor(const DeltaNetSpec& spec) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.k_dim)));
}

float delta_rule(std::span<const float> q, std::span<const float> k, float v, float decay,
                 float beta, float* state, std::size_t stride) {
  return by_fma([&]() LLM_BY_FMA {
    LaneSum found;
    for (std::size_t i = 0; i < k.size(); ++i) {
      state[i * stride] *= decay;
      found.add_product(i, k[i], state[i * stride]);
    }
    const float change = (v - found.total()) * beta;
    LaneSum seen;
    for (std::size_t i = 0; i < k.size(); ++i) {
      state[i * stride] = std::fma(k[i], change, state[i * stride]);
      seen.add_product(i, q[i], state[i * stride]);
    }
    return seen.total();
  });
}

float scan(std::span<const float> q, std::span<const float> k, float v, float decay, float step,
           float past, float* state, std::size_t stride) {
  const float change = v * step;
  LaneSum seen;
  for (std::size_t i = 0; i < k.size(); ++i) {
    state[i * stride] = std::fma(k[i], change, state[i * stride] * decay);
    seen.add_product(i, q[i], state[i * stride]);
  }
  return std::fma(past, v, seen.total());
}

void scan(const DeltaNetSpec& spec, std::span<const float> x, std::span<const float> a,
          std::span<const float> dt, std::span<const float> slope, std::span<const float> past,
          const DeltaState& state, std::span<float> o) {
  for (std::size_t head = 0; head < spec.n_v_heads; ++head) {
    const std::size_t of_head = spec.k_head_of(head) * spec.k_dim;
    const auto k = x.subspan(spec.v_rows() + of_head, spec.k_dim);
    const auto q = x.subspan(spec.v_rows() + spec.k_rows() + of_head, spec.k_dim);
    const float step = contract::delta_step(a[head], dt[head]);
    const float decay = contract::delta_decay(a[head], dt[head], slope[head]);
    for (std::size_t c = 0; c < spec.v_dim; ++c) {
      const std::size_t column = head * spec.v_dim + c;
      o[column] = scan(q, k, x[column], decay, step, past[head], &state.at(head, 0, c),
                       DeltaState::kColumns);
    }
  }
}

void delta_rule(const DeltaNetSpec& spec, std::span<const float> x, std::span<const float> a,
                std::span<const float> b, std::span<const float> dt, std::span<const float> slope,
                const DeltaState& state, std::span<float> o) {
  std::vector<float> qk(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(2 * spec.k_rows()));
  for (std::size_t head = 0; head < 2 * spec.n_k_heads; ++head)
    unit_length(std::span(qk).subspan(head * spec.k_dim, spec.k_dim),
                head < spec.n_k_heads ? query_factor(spec) : 1.0F);
  for (std::size_t head = 0; head < spec.n_v_heads; ++head) {
    const std::size_t k_head = spec.k_head_of(head);
    const auto q = std::span(qk).subspan(k_head * spec.k_dim, spec.k_dim);
    const auto k = std::span(qk).subspan(spec.k_rows() + k_head * spec.k_dim, spec.k_dim);
    const float decay = contract::delta_decay(a[head], dt[head], slope[head]);
    const float beta = contract::delta_beta(b[head]);
    for (std::size_t c = 0; c < spec.v_dim; ++c) {
      const std::size_t column = head * spec.v_dim + c;
      o[column] = delta_rule(q, k, x[2 * spec.k_rows() + column], decay, beta,
                             &state.at(head, 0, c), DeltaState::kColumns);
    }
  }
}

}  // namespace llm::reference
