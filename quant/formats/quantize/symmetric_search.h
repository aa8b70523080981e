#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "quant/formats/half.h"
#include "quant/formats/quantize/code_grids.h"
#include "quant/formats/quantize/lanes.h"

/// Quantization of a super-block whose sub-blocks have a signed scale and no min (Q3_K, Q6_K,
/// IQ4_XS):
///
///   w ~ a q,   a = d * scale,   q a value of Grid,   scale in [-kHalfScale, kHalfScale - 1]
///
/// with one f16 d. The steps are those of affine_search.h with one unknown instead of two: for
/// fixed codes the best a is sum(w x q) / sum(w q q). Codes reach one further on the negative side,
/// so starts are tried with the extreme weight on either side, and a takes its sign from that.
/// Integer scales are tried within kScaleReach of the real one; Q6_K's are so fine that many are
/// worth trying. Blocks of their own (Q4_0, Q5_0, IQ4_NL) have an f16 a and need step 1 only.

namespace llm {

/// What is stored of a super-block, offsets not yet added.
template <std::size_t kSubBlocks>
struct SymmetricBlock {
  std::int8_t scale[kSubBlocks];
  std::uint16_t d;
  std::int8_t codes[256];  ///< values of the grid, in the order of the weights
};

/// What is found of eight blocks of 32: of each an f16 scale and codes.
struct SymmetricBlocks {
  std::uint16_t d[kLanes];
  std::int8_t codes[256];
};

/// @tparam kHalfScale  0: eight blocks of their own
template <class Grid, std::size_t kGroups, int kHalfScale, int kScaleReach, bool kWeighted>
class SymmetricSearch {
 public:
  static constexpr std::size_t kSubBlocks = kGroups * kLanes;
  using Block = SymmetricBlock<kSubBlocks>;

  LLM_LANES_INLINE void run(const float* weights, const float* error_weights,
                            SymmetricBlocks& out) {
    blocks_.load(weights, error_weights);
    fit_real(0);
    F32Lanes a;
    for (std::size_t l = 0; l < kLanes; ++l) {
      out.d[l] = f32_to_f16(a_[0][l]);
      a[l] = f16_to_f32(out.d[l]);
    }
    store_codes(0, a, out.codes);
  }

  LLM_LANES_INLINE void run(const float* weights, const float* error_weights, Block& out) {
    blocks_.load(weights, error_weights);
    float extreme = 0.0f;
    for (std::size_t g = 0; g < kGroups; ++g) {
      fit_real(g);
      for (std::size_t l = 0; l < kLanes; ++l) {
        extreme = std::abs(a_[g][l]) > std::abs(extreme) ? a_[g][l] : extreme;
      }
    }
    float d = to_f16(extreme / -kLowScale);
    double best = fit_integers(d);
    store_scales(d, out);
    for (int round = 1; round < kRounds; ++round) {
      const float next = solve_scale(d);
      if (next == d) break;
      const double error = fit_integers(next);
      if (!(error < best)) break;
      best = error;
      d = next;
      store_scales(d, out);
    }
    store_codes(out);
  }

 private:
  static constexpr std::size_t kSize = 256 / kSubBlocks;
  static constexpr float kLowScale = static_cast<float>(kHalfScale);
  static constexpr float kHighScale = static_cast<float>(kHalfScale - 1);
  static constexpr int kRounds = 3;
  static constexpr int kRefinements = kWeighted ? 4 : 2;

  static float to_f16(float value) { return f16_to_f32(f32_to_f16(value)); }

  /// The codes nearest to x * inverse and their sums.
  struct CodeSums {
    F32Lanes qq{};  ///< sum w q q
    F32Lanes xq{};  ///< sum w x q
  };
  LLM_LANES_INLINE CodeSums sum_codes(std::size_t g, const F32Lanes& inverse) const {
    CodeSums sums;
    for (std::size_t i = 0; i < kSize; ++i) {
      const F32Lanes& x = blocks_.x[g][i];
      const F32Lanes q = Grid::nearest(x * inverse);
      const F32Lanes wq = blocks_.w(g, i) * q;
      sums.qq += wq * q;
      sums.xq += x * wq;
    }
    return sums;
  }

  /// Rounds the codes for one start and keeps the best step for them where it gains more. With a =
  /// xq / qq the error is sum(w x x) - xq xq / qq.
  LLM_LANES_INLINE void consider(std::size_t g, const F32Lanes& inverse, F32Lanes& best) {
    const CodeSums sums = sum_codes(g, inverse);
    const F32Lanes a = divide_or_zero(sums.xq, sums.qq);
    const F32Lanes gain = a * sums.xq;
    a_[g] = gain > best ? a : a_[g];
    best = larger(gain, best);
  }

  /// Step 1. A start maps the extreme weight `beyond` the last code.
  LLM_LANES_INLINE void fit_real(std::size_t g) {
    F32Lanes extreme = blocks_.x[g][0];
    F32Lanes squares{};
    for (std::size_t i = 0; i < kSize; ++i) {
      const F32Lanes& x = blocks_.x[g][i];
      extreme = x * x > extreme * extreme ? x : extreme;
      squares += blocks_.w(g, i) * (x * x);
    }
    xx_[g] = squares;
    const F32Lanes unit = divide_or_zero(splat(1.0f), extreme);
    a_[g] = F32Lanes{};
    F32Lanes best{};
    const auto start = [&](float beyond) {
      consider(g, (Grid::kLow - beyond) * unit, best);
      consider(g, (Grid::kHigh + beyond) * unit, best);
    };
    for (const float beyond : Grid::kBeyond) start(beyond);
    if constexpr (kWeighted) {  // weights that count little may be clipped further
      for (const float beyond : Grid::kFurther) start(beyond);
    }
    for (int i = 0; i < kRefinements; ++i) {
      consider(g, divide_or_zero(splat(1.0f), a_[g]), best);
    }
  }

  /// Squared error with codes rounded for step a: a a sum w (t - q)^2 with t = x / a.
  LLM_LANES_INLINE F32Lanes rounded_error(std::size_t g, const F32Lanes& a) const {
    const F32Lanes inverse = divide_or_zero(splat(1.0f), a);
    F32Lanes sum{};
    for (std::size_t i = 0; i < kSize; ++i) {
      const F32Lanes t = blocks_.x[g][i] * inverse;
      const F32Lanes r = t - Grid::nearest(t);
      sum += blocks_.w(g, i) * (r * r);
    }
    return a != 0.0f ? a * a * sum : xx_[g];
  }

  /// Step 2 for given d. Returns the error of the whole super-block.
  LLM_LANES_INLINE double fit_integers(float d) {
    const float inverse_d = d != 0.0f ? 1.0f / d : 0.0f;
    double total = 0.0;
    for (std::size_t g = 0; g < kGroups; ++g) {
      const F32Lanes nearest = round_within(a_[g] * inverse_d, -kLowScale, kHighScale);
      F32Lanes best = splat(std::numeric_limits<float>::infinity());
      scale_[g] = F32Lanes{};
      for (int i = -kScaleReach; i <= kScaleReach; ++i) {
        const F32Lanes scale =
            smaller(larger(nearest + static_cast<float>(i), splat(-kLowScale)), splat(kHighScale));
        const F32Lanes error = rounded_error(g, scale * d);
        scale_[g] = error < best ? scale : scale_[g];
        best = smaller(error, best);
      }
      for (std::size_t l = 0; l < kLanes; ++l) total += static_cast<double>(best[l]);
    }
    return total;
  }

  /// Step 3: d of least squared error given all integers, rounded to f16.
  LLM_LANES_INLINE float solve_scale(float d) {
    double squares = 0.0;
    double products = 0.0;
    for (std::size_t g = 0; g < kGroups; ++g) {
      a_[g] = scale_[g] * d;
      const CodeSums sums = sum_codes(g, divide_or_zero(splat(1.0f), a_[g]));
      for (std::size_t l = 0; l < kLanes; ++l) {
        const double s = static_cast<double>(scale_[g][l]);
        squares += s * s * static_cast<double>(sums.qq[l]);
        products += s * static_cast<double>(sums.xq[l]);
      }
    }
    return squares > 0.0 ? to_f16(static_cast<float>(products / squares)) : d;
  }

  LLM_LANES_INLINE void store_scales(float d, Block& out) const {
    out.d = f32_to_f16(d);
    for (std::size_t g = 0; g < kGroups; ++g) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        out.scale[g * kLanes + l] = static_cast<std::int8_t>(scale_[g][l]);
      }
    }
  }

  /// Codes for what store_scales() stored last.
  LLM_LANES_INLINE void store_codes(Block& out) const {
    const float d = f16_to_f32(out.d);
    for (std::size_t g = 0; g < kGroups; ++g) {
      F32Lanes a;
      for (std::size_t l = 0; l < kLanes; ++l) {
        a[l] = d * static_cast<float>(out.scale[g * kLanes + l]);
      }
      store_codes(g, a, out.codes);
    }
  }
  LLM_LANES_INLINE void store_codes(std::size_t g, const F32Lanes& a,
                                    std::int8_t (&codes)[256]) const {
    const F32Lanes inverse = divide_or_zero(splat(1.0f), a);
    for (std::size_t i = 0; i < kSize; ++i) {
      const F32Lanes q = Grid::nearest(blocks_.x[g][i] * inverse);
      for (std::size_t l = 0; l < kLanes; ++l) {
        codes[(g * kLanes + l) * kSize + i] = static_cast<std::int8_t>(q[l]);
      }
    }
  }

  SubBlocks<kGroups, kSize, kWeighted> blocks_;
  F32Lanes xx_[kGroups];     // sum of w x x
  F32Lanes a_[kGroups];      // current real step
  F32Lanes scale_[kGroups];  // current integers
};

}  // namespace llm
