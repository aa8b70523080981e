#pragma once

// Gated DeltaNet and Mamba-2 on 16 lanes: the convolution, the lengths of heads, and the state.
// Part of an ISA unit. Each equals the loops of engine/forward/reference/delta_net.cpp.

#include <array>

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

/// N of the contract's 16-lane sums over i < n at once, of 16 columns each: lane i mod 16 of them
/// is what add(i, lanes) makes of it, and no more than four lanes of each are in registers.
template <class A, std::size_t N, class Add>
LLM_INLINE std::array<F32x16<A>, N> column_sums(std::size_t n, Add add) {
  constexpr std::size_t kLanesOfGroup[] = {0, 8, 4, 12};
  using Lanes = std::array<F32x16<A>, N>;
  Lanes groups[4];
  _Pragma("GCC unroll 4") for (std::size_t g = 0; g < 4; ++g) {
    Lanes lanes[4];
    for (Lanes& lane : lanes) lane.fill(broadcast_f32<A>(0));
    std::size_t i = g;
    for (; i + 12 < n; i += 16) {
      _Pragma("GCC unroll 4") for (std::size_t l = 0; l < 4; ++l)
          add(i + kLanesOfGroup[l], lanes[l]);
    }
    for (std::size_t l = 0; l < 4; ++l)
      if (i + kLanesOfGroup[l] < n) add(i + kLanesOfGroup[l], lanes[l]);
    for (std::size_t s = 0; s < N; ++s)
      groups[g][s] = (lanes[0][s] + lanes[1][s]) + (lanes[2][s] + lanes[3][s]);
  }
  Lanes sums;
  for (std::size_t s = 0; s < N; ++s)
    sums[s] = (groups[0][s] + groups[2][s]) + (groups[1][s] + groups[3][s]);
  return sums;
}

/// A token changes the state and sees it. In the same pass over it the state decays for the token
/// after it, whose k finds what is there: each value is read and written once a token.
template <class A>
void delta_rule(const llm::DeltaRuleArgs& args) {
  if (args.n_tokens == 0) return;
  float* const state = args.state;  // of which no store changes the address
  const std::size_t k_dim = args.k_dim;
  const bool is_whole = args.n_columns == 16;
  const auto row = [&args](const float* first, std::size_t t) { return first + t * args.stride; };
  const auto decay_of = [&args](std::size_t t) {
    return broadcast_f32<A>(args.decay[t * args.gate_stride]);
  };
  const auto put = [&](std::size_t t, const F32x16<A>& seen) {
    float* const out = args.out + t * args.out_stride;
    is_whole ? store_f32(out, seen) : store_tail(out, seen, args.n_columns);
  };
  const float* k = row(args.k, 0);
  const auto first_decay = decay_of(0);
  auto found = column_sums<A, 1>(k_dim, [=](std::size_t i, auto& lane) {
    const auto kept = load_f32<A>(state + 16 * i) * first_decay;
    store_f32(state + 16 * i, kept);
    lane[0] = fma(broadcast_f32<A>(k[i]), kept, lane[0]);
  })[0];
  for (std::size_t t = 0; t < args.n_tokens; ++t) {
    const float* const q = row(args.q, t);
    const float* const v = row(args.v, t);
    const auto value = is_whole ? load_f32<A>(v) : load_tail<A>(v, args.n_columns);
    const auto beta = broadcast_f32<A>(args.beta[t * args.gate_stride]);
    const auto change = (args.finds ? value - found : value) * beta;
    const auto next_of_row = [=](std::size_t i) {
      return fma(broadcast_f32<A>(k[i]), change, load_f32<A>(state + 16 * i));
    };
    F32x16<A> seen;
    if (t + 1 == args.n_tokens) {
      seen = column_sums<A, 1>(k_dim, [=](std::size_t i, auto& lane) {
        const auto next = next_of_row(i);
        store_f32(state + 16 * i, next);
        lane[0] = fma(broadcast_f32<A>(q[i]), next, lane[0]);
      })[0];
    } else {
      const float* const next_k = row(args.k, t + 1);
      const auto decay = decay_of(t + 1);
      const auto sums = column_sums<A, 2>(k_dim, [=](std::size_t i, auto& lane) {
        const auto next = next_of_row(i);
        lane[0] = fma(broadcast_f32<A>(q[i]), next, lane[0]);
        const auto kept = next * decay;
        store_f32(state + 16 * i, kept);
        lane[1] = fma(broadcast_f32<A>(next_k[i]), kept, lane[1]);
      });
      seen = sums[0];
      found = sums[1];
      k = next_k;
    }
    put(t, args.finds ? seen : fma(broadcast_f32<A>(args.past), value, seen));
  }
}

}  // namespace
