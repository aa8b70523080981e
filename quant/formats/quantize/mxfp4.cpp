#include "quant/formats/quantize/mxfp4.h"

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

/// Stores x with exponent `e` and returns the sum of squared errors. f64 has room for the square of
/// every f32, and x / 2^n is exact in it.
double store(const float (&x)[32], int e, BlockMXFP4& out) {
  out.d = static_cast<std::uint8_t>(e);
  const auto d = static_cast<double>(e8m0_half_to_f32(out.d));
  std::uint8_t codes[32];
  double error = 0;
  for (std::size_t j = 0; j < 32; ++j) {
    const auto value = static_cast<double>(x[j]);
    codes[j] = nearest(value / d);
    const double difference = value - d * BlockMXFP4::kValues[codes[j]];
    error += difference * difference;
  }
  for (std::size_t j = 0; j < 16; ++j)
    out.qs[j] = static_cast<std::uint8_t>(codes[j] | codes[j + 16] << 4);
  return error;
}

}  // namespace

void quantize_block(const float (&x)[32], BlockMXFP4& out) {
  float amax = 0;
  for (const float value : x) amax = std::max(amax, std::abs(value));
  // The biased exponent of amax; 0 for denormals, whose blocks take exponents 0 and 1.
  const int largest = static_cast<int>(std::bit_cast<std::uint32_t>(amax) >> 23);
  double least = std::numeric_limits<double>::infinity();
  for (const int beyond : {0, -1, 1}) {
    BlockMXFP4 block;
    const double error = store(x, std::clamp(largest - 2 + beyond, 0, kHighestExponent), block);
    if (error < least) {
      least = error;
      out = block;
    }
  }
}

}  // namespace llm
