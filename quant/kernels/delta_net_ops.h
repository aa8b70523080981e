#pragma once

// Gated DeltaNet and Mamba-2 on 16 lanes: the convolution, the lengths of heads, and the state.
// Part of an ISA unit. Each equals the loops of engine/forward/reference/delta_net.cpp.

#include "quant/kernels/float_ops.h"
#include "quant/numerics/delta_net.h"

namespace {

template <class A>
void convolve(const llm::ConvolveArgs& args) {
  const auto one = broadcast_f32<A>(1.0F);
  const auto whole = [&](std::size_t c) {
    auto sum = broadcast_f32<A>(0);
    for (std::size_t j = 0; j < args.width; ++j)
      sum =
          fma(load_f32<A>(args.weights + j * args.stride + c), load_f32<A>(args.rows[j] + c), sum);
    if (args.bias != nullptr) sum = sum + load_f32<A>(args.bias + c);
    return args.silu ? swiglu16(sum, one) : sum;
  };
  std::size_t c = 0;
  for (; c + 16 <= args.n; c += 16) store_f32(args.y + c, whole(c));
  if (c == args.n) return;
  auto sum = broadcast_f32<A>(0);
  for (std::size_t j = 0; j < args.width; ++j)
    sum = fma(load_tail<A>(args.weights + j * args.stride + c, args.n - c),
              load_tail<A>(args.rows[j] + c, args.n - c), sum);
  if (args.bias != nullptr) sum = sum + load_tail<A>(args.bias + c, args.n - c);
  store_tail(args.y + c, args.silu ? swiglu16(sum, one) : sum, args.n - c);
}

template <class A>
void unit_length(float* x, std::size_t n, float factor) {
  const std::size_t whole = n / 16 * 16;
  auto squares = broadcast_f32<A>(0);
  for (std::size_t i = 0; i < whole; i += 16) {
    const auto v = load_f32<A>(x + i);
    squares = fma(v, v, squares);
  }
  if (whole < n) {
    const auto v = load_tail<A>(x + whole, n - whole);
    squares = fma(v, v, squares);
  }
  const float sum = lane_sum(squares);
  const float s = 1.0F / std::sqrt(sum + llm::contract::kDeltaEps) + (sum - sum);
  const auto s16 = broadcast_f32<A>(s);
  const auto factor16 = broadcast_f32<A>(factor);
  for (std::size_t i = 0; i < whole; i += 16)
    store_f32(x + i, (load_f32<A>(x + i) * s16) * factor16);
  for (std::size_t i = whole; i < n; ++i) x[i] = (x[i] * s) * factor;
}

/// The contract's 16-lane sum over i < n, of 16 columns at once: lane i mod 16 of a column is what
/// add(i, lane) makes of it, and no more than four lanes are in registers.
template <class A, class Add>
LLM_INLINE F32x16<A> column_sums(std::size_t n, Add add) {
  constexpr std::size_t kLanesOfGroup[] = {0, 8, 4, 12};
  F32x16<A> groups[4];
  _Pragma("GCC unroll 4") for (std::size_t g = 0; g < 4; ++g) {
    F32x16<A> lanes[4];
    for (auto& lane : lanes) lane = broadcast_f32<A>(0);
    std::size_t i = g;
    for (; i + 12 < n; i += 16) {
      _Pragma("GCC unroll 4") for (std::size_t l = 0; l < 4; ++l) lanes[l] =
          add(i + kLanesOfGroup[l], lanes[l]);
    }
    for (std::size_t l = 0; l < 4; ++l)
      if (i + kLanesOfGroup[l] < n) lanes[l] = add(i + kLanesOfGroup[l], lanes[l]);
    groups[g] = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  }
  return (groups[0] + groups[2]) + (groups[1] + groups[3]);
}

template <class A>
void delta_rule(const llm::DeltaRuleArgs& args) {
  const bool is_whole = args.n_columns == 16;
  for (std::size_t t = 0; t < args.n_tokens; ++t) {
    const float* const q = args.q + t * args.stride;
    const float* const k = args.k + t * args.stride;
    const float* const v = args.v + t * args.stride;
    float* const out = args.out + t * args.out_stride;
    const auto decay = broadcast_f32<A>(args.decay[t * args.gate_stride]);
    const auto beta = broadcast_f32<A>(args.beta[t * args.gate_stride]);
    const auto kept = [&](std::size_t i) { return load_f32<A>(args.state + 16 * i) * decay; };
    const auto value = is_whole ? load_f32<A>(v) : load_tail<A>(v, args.n_columns);
    auto change = value * beta;
    if (args.finds) {
      const auto found = column_sums<A>(args.k_dim, [&](std::size_t i, const F32x16<A>& lane) {
        return fma(broadcast_f32<A>(k[i]), kept(i), lane);
      });
      change = (value - found) * beta;
    }
    auto seen = column_sums<A>(args.k_dim, [&](std::size_t i, const F32x16<A>& lane) {
      const auto next = fma(broadcast_f32<A>(k[i]), change, kept(i));
      store_f32(args.state + 16 * i, next);
      return fma(broadcast_f32<A>(q[i]), next, lane);
    });
    if (!args.finds) seen = fma(broadcast_f32<A>(args.past), value, seen);
    if (is_whole) {
      store_f32(out, seen);
    } else {
      store_tail(out, seen, args.n_columns);
    }
  }
}

}  // namespace
