#include "quant/formats/quantize/ternary.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "quant/formats/half.h"

namespace llm {
namespace {

/// The scale, and the codes for it: 0, 1 and 2 for -d, 0 and d.
std::uint16_t find_codes(const float (&x)[256], const float (&w)[256], std::uint8_t (&codes)[256]) {
  std::uint16_t order[256];
  std::iota(order, order + 256, std::uint16_t{0});
  std::stable_sort(order, order + 256, [&](std::uint16_t a, std::uint16_t b) {
    return std::abs(x[a]) > std::abs(x[b]);
  });
  double sum = 0;
  double weight = 0;
  double gain = 0;
  double scale = 0;
  for (const std::uint16_t j : order) {
    sum += static_cast<double>(w[j]) * static_cast<double>(std::abs(x[j]));
    weight += static_cast<double>(w[j]);
    if (sum * sum > gain * weight) {
      gain = sum * sum / weight;
      scale = sum / weight;
    }
  }
  const std::uint16_t d = f32_to_f16(static_cast<float>(scale));
  const float middle = f16_to_f32(d) / 2;
  for (std::size_t j = 0; j < 256; ++j)
    codes[j] = static_cast<std::uint8_t>(x[j] > middle ? 2 : x[j] < -middle ? 0 : 1);
  return d;
}

/// The byte whose digits in base 3, as base3_digit() reads them, are `n` codes from the first, each
/// `stride` after the one before, and then zeros: the smallest b with b / 256 >= the fraction.
std::uint8_t base3_byte(const std::uint8_t* first, std::size_t stride, std::size_t n) {
  unsigned number = 0;
  for (std::size_t i = 0; i < 5; ++i) number = 3 * number + (i < n ? first[i * stride] : 0U);
  return static_cast<std::uint8_t>((number * 256 + 242) / 243);
}

}  // namespace

void quantize_block(const float (&x)[256], const float (&w)[256], BlockTQ1_0& out) {
  std::uint8_t codes[256];
  out.d = find_codes(x, w, codes);
  for (std::size_t l = 0; l < 32; ++l) out.qs[l] = base3_byte(codes + l, 32, 5);
  for (std::size_t l = 0; l < 16; ++l) out.qs[32 + l] = base3_byte(codes + 160 + l, 16, 5);
  for (std::size_t l = 0; l < 4; ++l) out.qh[l] = base3_byte(codes + 240 + l, 4, 4);
}

void quantize_block(const float (&x)[256], const float (&w)[256], BlockTQ2_0& out) {
  std::uint8_t codes[256];
  out.d = find_codes(x, w, codes);
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint8_t* first = codes + 128 * (i / 32) + i % 32;
    out.qs[i] =
        static_cast<std::uint8_t>(first[0] | first[32] << 2 | first[64] << 4 | first[96] << 6);
  }
}

}  // namespace llm
