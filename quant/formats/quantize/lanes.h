#pragma once

#include <cstddef>

/// Eight f32 lanes in the compilers' own vector extension: one AVX register, two of SSE or NEON. A
/// lane is one sub-block of a super-block, so every sum runs along a lane in ascending order and no
/// instruction set can change it. Everything here is always inlined: a function compiled for AVX2
/// (k_quants.cpp) leaves no AVX2 symbol behind, and no vector passes through a calling convention.

// GCC warns that vectors pass differently with and without AVX; none is passed.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace llm {

#define LLM_LANES_INLINE [[gnu::always_inline]] inline

inline constexpr std::size_t kLanes = 8;
using F32Lanes [[gnu::vector_size(32)]] = float;

LLM_LANES_INLINE F32Lanes splat(float value) { return value - F32Lanes{}; }
LLM_LANES_INLINE F32Lanes smaller(const F32Lanes& a, const F32Lanes& b) { return a < b ? a : b; }
LLM_LANES_INLINE F32Lanes larger(const F32Lanes& a, const F32Lanes& b) { return a > b ? a : b; }

/// round(v) within [lowest, highest], ties to even; NaN gives lowest.
/// 1.5 * 2^23 has a unit in the last place of 1, so adding it rounds to an integer.
LLM_LANES_INLINE F32Lanes round_within(const F32Lanes& v, float lowest, float highest) {
  const F32Lanes shift = splat(12582912.0f);
  return (smaller(larger(v, splat(lowest)), splat(highest)) + shift) - shift;
}

/// a / b where b is not 0, else 0.
LLM_LANES_INLINE F32Lanes divide_or_zero(const F32Lanes& a, const F32Lanes& b) {
  return b != 0.0f ? a / b : F32Lanes{};
}

/// One super-block, transposed: x[g][i] holds weight i of sub-blocks 8g .. 8g + 7, and w(g, i) what
/// the squares of their errors count: what error_weights() makes of importances, or 1.
template <std::size_t kGroups, std::size_t kSize, bool kWeighted>
struct SubBlocks {
  F32Lanes x[kGroups][kSize];
  F32Lanes error_weights[kWeighted ? kGroups : 1][kWeighted ? kSize : 1];

  LLM_LANES_INLINE void load(const float* weights, const float* of_errors) {
    for (std::size_t g = 0; g < kGroups; ++g) {
      for (std::size_t i = 0; i < kSize; ++i) {
        const std::size_t first = g * kLanes * kSize + i;
        x[g][i] = every_sub_block(weights + first);
        if constexpr (kWeighted) error_weights[g][i] = every_sub_block(of_errors + first);
      }
    }
  }
  LLM_LANES_INLINE F32Lanes w(std::size_t g, std::size_t i) const {
    if constexpr (kWeighted) return error_weights[g][i];
    return splat(1.0f);
  }

 private:
  LLM_LANES_INLINE static F32Lanes every_sub_block(const float* first) {
    return F32Lanes{first[0],         first[kSize],     first[2 * kSize], first[3 * kSize],
                    first[4 * kSize], first[5 * kSize], first[6 * kSize], first[7 * kSize]};
  }
};

}  // namespace llm
