#include "quant/formats/quantize/float4.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "quant/formats/half.h"

namespace llm {
namespace {

constexpr int kHighestExponent = 252;

/// The code of the value nearest to v. Thresholds are the middles of neighbouring values.
std::uint8_t nearest(double v) {
  constexpr double kMiddles[] = {0.5, 1.5, 2.5, 3.5, 5, 7, 10};
  unsigned code = 0;
  for (const double middle : kMiddles) code += std::abs(v) > middle ? 1U : 0U;
  return static_cast<std::uint8_t>(v < 0 && code > 0 ? code | 8U : code);
}

/// Stores x with exponent `e` and returns the weighted sum of squared errors. f64 has room for the
/// square of every f32, and x / 2^n is exact in it.
double store(const float* x, const float* w, int e, BlockMXFP4& out) {
  out.d = static_cast<std::uint8_t>(e);
  const auto d = static_cast<double>(e8m0_half_to_f32(out.d));
  std::uint8_t codes[32];
  double error = 0;
  for (std::size_t j = 0; j < 32; ++j) {
    const auto value = static_cast<double>(x[j]);
    codes[j] = nearest(value / d);
    const double difference = value - d * BlockMXFP4::kValues[codes[j]];
    error += static_cast<double>(w[j]) * (difference * difference);
  }
  for (std::size_t j = 0; j < 16; ++j)
    out.qs[j] = static_cast<std::uint8_t>(codes[j] | codes[j + 16] << 4);
  return error;
}

float largest_magnitude(const float* x, std::size_t n) {
  float largest = 0;
  for (std::size_t j = 0; j < n; ++j) largest = std::max(largest, std::abs(x[j]));
  return largest;
}

}  // namespace

void quantize_block(const float* x, const float* w, BlockMXFP4& out) {
  const float amax = largest_magnitude(x, 32);
  // The biased exponent of amax; 0 for denormals, whose blocks take exponents 0 and 1.
  const int largest = static_cast<int>(std::bit_cast<std::uint32_t>(amax) >> 23);
  double least = std::numeric_limits<double>::infinity();
  for (const int beyond : {0, -1, 1}) {
    BlockMXFP4 block;
    const double error = store(x, w, std::clamp(largest - 2 + beyond, 0, kHighestExponent), block);
    if (error < least) {
      least = error;
      out = block;
    }
  }
}

void quantize_block(const float* x, const float* w, BlockNVFP4& out) {
  constexpr int kHighest = 0x7E;
  constexpr float kTop = 12;  // the largest of kValues
  out = {};
  for (std::size_t s = 0; s < 4; ++s, x += 16, w += 16) {
    const float amax = largest_magnitude(x, 16);
    if (amax > 2 * kTop * ue4m3_half_to_f32(kHighest)) {
      std::fill_n(out.scales, 4, std::uint8_t{0x7F});
      return;
    }
    double least = std::numeric_limits<double>::infinity();
    for (int e = 0; e <= kHighest; ++e) {
      const float d = ue4m3_half_to_f32(static_cast<std::uint8_t>(e));
      if (e != kHighest && kTop * ue4m3_half_to_f32(static_cast<std::uint8_t>(e + 1)) < amax / 2)
        continue;
      std::uint8_t codes[16];
      double error = 0;
      for (std::size_t j = 0; j < 16; ++j) {
        const auto value = static_cast<double>(x[j]);
        codes[j] = d > 0 ? nearest(value / static_cast<double>(d)) : std::uint8_t{0};
        const double difference = value - static_cast<double>(d) * BlockNVFP4::kValues[codes[j]];
        error += static_cast<double>(w[j]) * (difference * difference);
      }
      if (error < least) {
        least = error;
        out.scales[s] = static_cast<std::uint8_t>(e);
        for (std::size_t j = 0; j < 8; ++j)
          out.qs[8 * s + j] = static_cast<std::uint8_t>(codes[j] | codes[j + 8] << 4);
      }
      if (kTop * d > 1.6F * amax) break;
    }
  }
}

}  // namespace llm
