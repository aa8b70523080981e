#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "quant/numerics/contract.h"

namespace llm::contract {

/// Constants of the contract's exp, shared with the vector template so that both use the same bits.
struct ExpConstants {
  static constexpr float kMax = 89.0F;    ///< exp of anything above is +inf already
  static constexpr float kMin = -104.0F;  ///< exp of anything below is 0 already
  static constexpr float kLog2E = 0x1.715476p+0F;
  static constexpr float kMagic = 0x1.8p+23F;  ///< adding it rounds to an integer, half to even
  // ln 2 in two parts; n * kLn2High is exact for |n| < 2^13 (kLn2High has 9 significant bits).
  static constexpr float kLn2High = 0x1.63p-1F;
  static constexpr float kLn2Low = -0x1.bd0106p-13F;
  // (exp(r) - 1 - r) / r^2 on [-ln2/2, ln2/2], interpolated at the Chebyshev nodes in f64, rounded
  // to f32: relative error of exp below 0.2 units in the last place before the roundings of the
  // evaluation.
  static constexpr std::array<float, 5> kPoly = {0.5F, 0x1.5554dcp-3F, 0x1.55551ap-5F,
                                                 0x1.120b6ep-7F, 0x1.6d110ap-10F};
};

/// The contract's exp (docs/numerics.md): one fixed sequence of f32 operations, the same in every
/// lane of every instruction set. Within 1.1 units in the last place of the true value; results
/// below 2^-126 are denormal, never flushed. NaN gives NaN.
inline float exp(float x) {
  using K = ExpConstants;
  x = x > K::kMax ? K::kMax : x;
  x = x < K::kMin ? K::kMin : x;
  const float shifted = std::fma(x, K::kLog2E, K::kMagic);
  const float n = shifted - K::kMagic;
  const auto n_int = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(K::kMagic);
  float r = std::fma(n, -K::kLn2High, x);
  r = std::fma(n, -K::kLn2Low, r);
  float p = K::kPoly[4];
  for (int i = 3; i >= 0; --i) p = std::fma(p, r, K::kPoly[static_cast<std::size_t>(i)]);
  p = std::fma(p, r * r, r) + 1.0F;
  // 2^n in two factors, each a normal number for n in [-151, 129]: p * 2^half is exact, the second
  // product rounds once (to a denormal where it must).
  const std::int32_t half = n_int >> 1;
  const auto power = [](std::int32_t e) {
    return std::bit_cast<float>(
        static_cast<std::int32_t>(static_cast<std::uint32_t>(e + 127) << 23));
  };
  return p * power(half) * power(n_int - half);
}

/// A sum over kLanes virtual lanes: element i belongs to lane i mod 16, in ascending i; the lanes
/// are then added pairwise (l, l+8), (l, l+4), (l, l+2), (l, l+1).
class LaneSum {
 public:
  /// Adds `x` as element `i`.
  void add(std::size_t i, float x) { lanes_[i % kLanes] += x; }
  /// Adds a * b as element `i`, rounded once.
  void add_product(std::size_t i, float a, float b) {
    float& lane = lanes_[i % kLanes];
    lane = std::fma(a, b, lane);
  }
  float total() const {
    std::array<float, kLanes> sum = lanes_;
    for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
      for (std::size_t l = 0; l < width; ++l) sum[l] += sum[l + width];
    }
    return sum[0];
  }

 private:
  std::array<float, kLanes> lanes_{};
};

}  // namespace llm::contract
