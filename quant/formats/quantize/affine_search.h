#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "quant/formats/half.h"
#include "quant/formats/quantize/lanes.h"

/// Quantization of a super-block whose sub-blocks have a scale and a min (Q2_K, Q4_K, Q5_K):
///
///   w ~ a q - o,   a = d * scale,   o = dmin * min,   q in [0, kMaxCode]
///
/// with integer scale and min in [0, kMaxScale] and f16 d and dmin shared by all. The sum of
/// squared errors, each times its weight w, is made small in three steps:
///
/// 1. Per sub-block, for real a and o: from each start of a grid of ranges, round the codes, then
///    solve the 2 x 2 least-squares problem for (a, o) that those codes pose; o < 0 cannot be
///    stored and becomes 0 with a refitted. The best start is improved by rounding and solving in
///    turn.
/// 2. d and dmin from the largest a and o. Per sub-block, try integer pairs (scale, min) around the
///    real ones, each with codes rounded anew: the error as a function of the pair is bumpy, so
///    trying finds what rounding the pair would miss. As the scale moves by da, the best offset
///    moves along da * mean(q), so min candidates lie around that line.
/// 3. With all integers fixed, d and dmin solve a 2 x 2 least-squares problem over the whole
///    super-block. Back to 2 with the solution rounded to f16, as long as the error falls.
///
/// Blocks of their own (Q4_1, Q5_1) have f16 a and o of either sign: step 1, then
/// fit_halves().

namespace llm {

/// What is stored of a super-block: integers in [0, kMaxScale] and [0, kMaxCode], f16 bits.
template <std::size_t kSubBlocks>
struct AffineBlock {
  std::uint8_t scale[kSubBlocks];
  std::uint8_t min[kSubBlocks];
  std::uint16_t d;
  std::uint16_t dmin;
  std::uint8_t codes[256];  ///< in the order of the weights
};

/// What is found of eight blocks of 32: of each an f16 scale, what is added, and codes.
struct AffineBlocks {
  std::uint16_t d[kLanes];
  std::uint16_t m[kLanes];
  std::uint8_t codes[256];
};

/// Weighted sums over the codes of each sub-block; without weights the first two are exact.
struct CodeSums {
  F32Lanes q{};   ///< sum w q
  F32Lanes qq{};  ///< sum w q q
  F32Lanes xq{};  ///< sum w x q
};

/// @tparam kMaxScale  0: eight blocks of their own
template <std::size_t kGroups, std::size_t kSize, int kMaxCode, int kMaxScale, bool kWeighted>
class AffineSearch {
 public:
  static constexpr std::size_t kSubBlocks = kGroups * kLanes;

  LLM_LANES_INLINE void run(const float* weights, const float* error_weights, AffineBlocks& out) {
    blocks_.load(weights, error_weights);
    fit_real(0);
    F32Lanes a;
    F32Lanes o;
    fit_halves(a, o);
    for (std::size_t l = 0; l < kLanes; ++l) {
      out.d[l] = f32_to_f16(a[l]);
      out.m[l] = f32_to_f16(-o[l]);
    }
    store_codes(0, a, o, out.codes);
  }

  LLM_LANES_INLINE void run(const float* weights, const float* error_weights,
                            AffineBlock<kSubBlocks>& out) {
    blocks_.load(weights, error_weights);
    for (std::size_t g = 0; g < kGroups; ++g) fit_real(g);
    float d = to_f16(largest_lane(a_) / kMaxScale);
    float dmin = to_f16(largest_lane(o_) / kMaxScale);
    double best = fit_integers(d, dmin);
    store_scales(d, dmin, out);
    for (int round = 1; round < kRounds; ++round) {
      const Scales next = solve_scales(d, dmin);
      if (next.d == d && next.dmin == dmin) break;
      const double error = fit_integers(next.d, next.dmin);
      if (!(error < best)) break;
      best = error;
      d = next.d;
      dmin = next.dmin;
      store_scales(d, dmin, out);
    }
    store_codes(out);
  }

 private:
  static constexpr float kHigh = static_cast<float>(kMaxCode);
  static constexpr float kHighScale = static_cast<float>(kMaxScale);
  static constexpr bool kFreeOffset = kMaxScale == 0;
  static constexpr int kRounds = 3;
  static constexpr int kRefinements = kWeighted ? 4 : 2;
  static constexpr float kExact = 3e-5F;  // of the sum of squares, an error that is none
  static constexpr int kScaleReach = 2;   // integers tried on either side
  static constexpr int kMinReach = 1;

  struct Scales {
    float d;
    float dmin;
  };

  static float to_f16(float value) { return f16_to_f32(f32_to_f16(value)); }

  LLM_LANES_INLINE static float largest_lane(const F32Lanes (&lanes)[kGroups]) {
    float largest = 0.0f;
    for (const F32Lanes& group : lanes) {
      for (std::size_t l = 0; l < kLanes; ++l) largest = std::max(largest, group[l]);
    }
    return largest;
  }

  /// Codes round(x * inverse + shift) and their sums.
  LLM_LANES_INLINE CodeSums sum_codes(std::size_t g, const F32Lanes& inverse,
                                      const F32Lanes& shift) const {
    CodeSums sums;
    for (std::size_t i = 0; i < kSize; ++i) {
      const F32Lanes& x = blocks_.x[g][i];
      const F32Lanes q = round_within(x * inverse + shift, 0.0f, kHigh);
      const F32Lanes wq = blocks_.w(g, i) * q;
      sums.q += wq;
      sums.qq += wq * q;
      sums.xq += x * wq;
    }
    return sums;
  }

  /// Squared error of a q - o given the sums of the codes, constant sum of w x x left out.
  LLM_LANES_INLINE F32Lanes error_of(std::size_t g, const CodeSums& sums, const F32Lanes& a,
                                     const F32Lanes& o) const {
    return a * (a * sums.qq - 2.0f * sums.xq - 2.0f * o * sums.q) + o * (w_[g] * o + 2.0f * x_[g]);
  }

  /// Rounds the codes for one start, solves for (a, o), keeps them where the error is lower.
  LLM_LANES_INLINE void consider(std::size_t g, const F32Lanes& inverse, const F32Lanes& shift,
                                 F32Lanes& best) {
    const CodeSums sums = sum_codes(g, inverse, shift);
    const F32Lanes determinant = w_[g] * sums.qq - sums.q * sums.q;
    F32Lanes a = divide_or_zero(w_[g] * sums.xq - x_[g] * sums.q, determinant);
    F32Lanes o =
        determinant > 0.0f ? (sums.q * sums.xq - sums.qq * x_[g]) / determinant : x_[g] / -w_[g];
    if constexpr (!kFreeOffset) {
      const F32Lanes without_min = divide_or_zero(sums.xq, sums.qq);
      a = o < 0.0f ? without_min : a;
      o = larger(o, F32Lanes{});
    }
    a = larger(a, F32Lanes{});
    // Weights that were quantized before fit exactly, and with codes that do not reach the last
    // step in several ways: the first start that does so is kept.
    const F32Lanes error = error_of(g, sums, a, o);
    const auto is_better = (error < best) & (best > (kExact - 1) * xx_[g]);
    a_[g] = is_better ? a : a_[g];
    o_[g] = is_better ? o : o_[g];
    best = is_better ? error : best;
  }

  /// Step 1. A start clips `clip` steps of the range, a share of them at the lower end.
  LLM_LANES_INLINE void fit_real(std::size_t g) {
    F32Lanes low = blocks_.x[g][0];
    F32Lanes high = blocks_.x[g][0];
    F32Lanes count{};
    F32Lanes sum{};
    F32Lanes squares{};
    for (std::size_t i = 0; i < kSize; ++i) {
      const F32Lanes& x = blocks_.x[g][i];
      const F32Lanes w = blocks_.w(g, i);
      low = smaller(low, x);
      high = larger(high, x);
      count += w;
      sum += w * x;
      squares += w * (x * x);
    }
    w_[g] = count;
    x_[g] = sum;
    xx_[g] = squares;
    if constexpr (!kFreeOffset) low = smaller(low, F32Lanes{});
    const F32Lanes unit = divide_or_zero(splat(1.0f), high - low);
    a_[g] = F32Lanes{};
    o_[g] = F32Lanes{};
    F32Lanes best = splat(std::numeric_limits<float>::infinity());
    const auto start = [&](float clip, float share) {
      const F32Lanes inverse = (kHigh + clip) * unit;
      consider(g, inverse, -low * inverse - clip * share, best);
    };
    // Weights that were quantized before have the lowest at code 0, and all steps or a few less.
    for (const float clip : {0.0f, -1.0f, -2.0f}) start(clip, 0);
    for (const float clip : {-0.3f, 0.3f, 0.9f, 1.5f})
      for (const float share : {0.0f, 0.5f, 1.0f}) start(clip, share);
    // Weights that count little may be clipped further.
    if constexpr (kWeighted) {
      for (const float clip : {-1.0f, -0.6f, 0.6f, 1.2f, 2.2f, 3.2f, 5.0f})
        for (const float share : {0.0f, 0.25f, 0.5f, 0.75f, 1.0f}) start(clip, share);
    }
    for (int i = 0; i < kRefinements; ++i) {
      const F32Lanes inverse = divide_or_zero(splat(1.0f), a_[g]);
      consider(g, inverse, o_[g] * inverse, best);
    }
  }

  /// Squared error with codes rounded for (a, o): a a sum w (t - q)^2 with t = (x + o) / a. Where
  /// a is 0 every code is 0 and the error that of o alone. The constant sum of w x x is included.
  LLM_LANES_INLINE F32Lanes rounded_error(std::size_t g, const F32Lanes& a,
                                          const F32Lanes& o) const {
    const F32Lanes inverse = divide_or_zero(splat(1.0f), a);
    const F32Lanes shift = o * inverse;
    F32Lanes sum{};
    for (std::size_t i = 0; i < kSize; ++i) {
      const F32Lanes t = blocks_.x[g][i] * inverse + shift;
      const F32Lanes r = t - round_within(t, 0.0f, kHigh);
      sum += blocks_.w(g, i) * (r * r);
    }
    return a > 0.0f ? a * a * sum : xx_[g] + o * (w_[g] * o + 2.0f * x_[g]);
  }

  /// The f16 value `steps` further from zero than `value` rounded; infinity has no neighbours.
  LLM_LANES_INLINE static F32Lanes neighbour(const F32Lanes& value, int steps) {
    F32Lanes out;
    for (std::size_t l = 0; l < kLanes; ++l) {
      const int bits = f32_to_f16(value[l]);
      const int magnitude = bits & 0x7fff;
      const int moved = magnitude == 0x7c00 ? magnitude : std::clamp(magnitude + steps, 0, 0x7bff);
      out[l] = f16_to_f32(static_cast<std::uint16_t>((bits & 0x8000) | moved));
    }
    return out;
  }

  /// The f16 pair of least error among the neighbours of the pair that step 1 found, and of those
  /// of the whole range. error_of() cannot tell pairs apart that hold the weights almost exactly:
  /// the sums that it subtracts are rounded.
  LLM_LANES_INLINE void fit_halves(F32Lanes& a, F32Lanes& o) const {
    F32Lanes low = blocks_.x[0][0];
    F32Lanes high = blocks_.x[0][0];
    for (std::size_t i = 1; i < kSize; ++i) {
      low = smaller(low, blocks_.x[0][i]);
      high = larger(high, blocks_.x[0][i]);
    }
    a = neighbour(a_[0], 0);
    o = neighbour(o_[0], 0);
    F32Lanes best = splat(std::numeric_limits<float>::infinity());
    const auto around = [&](const F32Lanes& real_a, const F32Lanes& real_o) {
      for (int i = -1; i <= 1; ++i) {
        const F32Lanes half_a = neighbour(real_a, i);
        for (int j = -1; j <= 1; ++j) {
          const F32Lanes half_o = neighbour(real_o, j);
          const F32Lanes error = rounded_error(0, half_a, half_o);
          a = error < best ? half_a : a;
          o = error < best ? half_o : o;
          best = smaller(error, best);
        }
      }
    };
    around(a_[0], o_[0]);
    // The whole range, and that of weights that had a bit less before.
    for (const float steps : {kHigh, kHigh - 1.0f}) around((high - low) / steps, -low);
  }

  /// Step 2 for given d and dmin. Returns the error of the whole super-block.
  LLM_LANES_INLINE double fit_integers(float d, float dmin) {
    double total = 0.0;
    for (std::size_t g = 0; g < kGroups; ++g) {
      const F32Lanes inverse = divide_or_zero(splat(1.0f), a_[g]);
      const F32Lanes mean_code = sum_codes(g, inverse, o_[g] * inverse).q / w_[g];
      const F32Lanes mean = x_[g] / w_[g];
      const float inverse_d = d > 0.0f ? 1.0f / d : 0.0f;
      const float inverse_dmin = dmin > 0.0f ? 1.0f / dmin : 0.0f;
      const F32Lanes nearest = round_within(a_[g] * inverse_d, 0.0f, kHighScale);
      F32Lanes best = splat(std::numeric_limits<float>::infinity());
      scale_[g] = F32Lanes{};
      min_[g] = F32Lanes{};
      for (int i = -kScaleReach; i <= kScaleReach; ++i) {
        const F32Lanes scale =
            smaller(larger(nearest + static_cast<float>(i), F32Lanes{}), splat(kHighScale));
        const F32Lanes a = scale * d;
        const F32Lanes real_min = (a * mean_code - mean) * inverse_dmin;
        for (int j = -kMinReach; j <= kMinReach; ++j) {
          const F32Lanes min = round_within(real_min + static_cast<float>(j), 0.0f, kHighScale);
          const F32Lanes error = rounded_error(g, a, min * dmin);
          scale_[g] = error < best ? scale : scale_[g];
          min_[g] = error < best ? min : min_[g];
          best = smaller(error, best);
        }
      }
      for (std::size_t l = 0; l < kLanes; ++l) total += static_cast<double>(best[l]);
    }
    return total;
  }

  /// Step 3: (d, dmin) of least squared error given all integers, rounded to f16 and not negative.
  LLM_LANES_INLINE Scales solve_scales(float d, float dmin) {
    double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (std::size_t g = 0; g < kGroups; ++g) {
      a_[g] = scale_[g] * d;
      o_[g] = min_[g] * dmin;
      const F32Lanes inverse = divide_or_zero(splat(1.0f), a_[g]);
      const CodeSums sums = sum_codes(g, inverse, o_[g] * inverse);
      for (std::size_t l = 0; l < kLanes; ++l) {
        const double s = static_cast<double>(scale_[g][l]);
        const double m = static_cast<double>(min_[g][l]);
        aa += s * s * static_cast<double>(sums.qq[l]);
        ab += s * m * static_cast<double>(sums.q[l]);
        bb += m * m * static_cast<double>(w_[g][l]);
        xa += s * static_cast<double>(sums.xq[l]);
        xb += m * static_cast<double>(x_[g][l]);
      }
    }
    // Minimizes sum (x - d s q + dmin m)^2: d aa - dmin ab = xa, d ab - dmin bb = xb.
    const double determinant = aa * bb - ab * ab;
    if (!(determinant > 1e-9 * aa * bb)) return {d, dmin};
    const double next_d = (xa * bb - xb * ab) / determinant;
    const double next_dmin = (xa * ab - xb * aa) / determinant;
    if (!(next_d > 0.0 && next_dmin >= 0.0)) return {d, dmin};
    return {to_f16(static_cast<float>(next_d)), to_f16(static_cast<float>(next_dmin))};
  }

  LLM_LANES_INLINE void store_scales(float d, float dmin, AffineBlock<kSubBlocks>& out) const {
    out.d = f32_to_f16(d);
    out.dmin = f32_to_f16(dmin);
    for (std::size_t g = 0; g < kGroups; ++g) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        out.scale[g * kLanes + l] = static_cast<std::uint8_t>(scale_[g][l]);
        out.min[g * kLanes + l] = static_cast<std::uint8_t>(min_[g][l]);
      }
    }
  }

  /// Codes for what store_scales() stored last.
  LLM_LANES_INLINE void store_codes(AffineBlock<kSubBlocks>& out) const {
    const float d = f16_to_f32(out.d);
    const float dmin = f16_to_f32(out.dmin);
    for (std::size_t g = 0; g < kGroups; ++g) {
      F32Lanes a;
      F32Lanes o;
      for (std::size_t l = 0; l < kLanes; ++l) {
        a[l] = d * static_cast<float>(out.scale[g * kLanes + l]);
        o[l] = dmin * static_cast<float>(out.min[g * kLanes + l]);
      }
      store_codes(g, a, o, out.codes);
    }
  }
  LLM_LANES_INLINE void store_codes(std::size_t g, const F32Lanes& a, const F32Lanes& o,
                                    std::uint8_t (&codes)[256]) const {
    const F32Lanes inverse = divide_or_zero(splat(1.0f), a);
    const F32Lanes shift = o * inverse;
    for (std::size_t i = 0; i < kSize; ++i) {
      const F32Lanes q = round_within(blocks_.x[g][i] * inverse + shift, 0.0f, kHigh);
      for (std::size_t l = 0; l < kLanes; ++l) {
        codes[(g * kLanes + l) * kSize + i] = static_cast<std::uint8_t>(q[l]);
      }
    }
  }

  SubBlocks<kGroups, kSize, kWeighted> blocks_;
  F32Lanes w_[kGroups];      // sum of w
  F32Lanes x_[kGroups];      // sum of w x
  F32Lanes xx_[kGroups];     // sum of w x x
  F32Lanes a_[kGroups];      // current real step
  F32Lanes o_[kGroups];      // current real offset
  F32Lanes scale_[kGroups];  // current integers
  F32Lanes min_[kGroups];
};

}  // namespace llm
