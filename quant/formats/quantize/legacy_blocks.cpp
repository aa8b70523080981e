#include "quant/formats/quantize/legacy_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "quant/formats/half.h"

namespace llm {
namespace {

/// 1 / d, or 0 where that is no number: d = 0, or d so small that every weight is below f16's
/// range.
float inverse(float d) {
  const float id = 1.0f / d;
  return std::isfinite(id) ? id : 0.0f;
}

/// floor(v) within [0, highest]; NaN gives 0.
int truncate(float v, int highest) {
  if (!(v > 0.0f)) return 0;
  return v < static_cast<float>(highest) ? static_cast<int>(v) : highest;
}

/// The first weight of largest magnitude, with its sign.
float extreme(const float (&x)[32]) {
  float best = x[0];
  for (const float value : x) best = std::abs(value) > std::abs(best) ? value : best;
  return best;
}

/// Nibbles, and where the block has them fifth bits.
template <typename Block>
void store_codes(const int (&codes)[32], Block& out) {
  for (int j = 0; j < 16; ++j) {
    out.qs[j] = static_cast<std::uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
  }
  if constexpr (requires { out.qh; }) {
    for (int i = 0; i < 4; ++i) {
      int byte = 0;
      for (int bit = 0; bit < 8; ++bit) byte |= codes[8 * i + bit] >> 4 << bit;
      out.qh[i] = static_cast<std::uint8_t>(byte);
    }
  }
}

/// Symmetric codes around kOffset = 2^(bits - 1). The extreme weight gets code 0, which is the
/// larger side of the two's complement range, so d has the opposite sign of that weight.
template <int kOffset, typename Block>
void quantize_symmetric(const float (&x)[32], Block& out) {
  const float d = extreme(x) / static_cast<float>(-kOffset);
  const float id = inverse(d);
  int codes[32];
  for (int j = 0; j < 32; ++j) {
    codes[j] = truncate(x[j] * id + (static_cast<float>(kOffset) + 0.5f), 2 * kOffset - 1);
  }
  out.d = f32_to_f16(d);
  store_codes(codes, out);
}

/// Codes 0 .. kHighest over [min, max].
template <int kHighest, typename Block>
void quantize_affine(const float (&x)[32], Block& out) {
  const float min = std::ranges::min(x);
  const float max = std::ranges::max(x);
  const float d = (max - min) / static_cast<float>(kHighest);
  const float id = inverse(d);
  int codes[32];
  for (int j = 0; j < 32; ++j) codes[j] = truncate((x[j] - min) * id + 0.5f, kHighest);
  out.d = f32_to_f16(d);
  out.m = f32_to_f16(min);
  store_codes(codes, out);
}

}  // namespace

void quantize_block(const float (&x)[32], BlockQ4_0& out) { quantize_symmetric<8>(x, out); }
void quantize_block(const float (&x)[32], BlockQ5_0& out) { quantize_symmetric<16>(x, out); }
void quantize_block(const float (&x)[32], BlockQ4_1& out) { quantize_affine<15>(x, out); }
void quantize_block(const float (&x)[32], BlockQ5_1& out) { quantize_affine<31>(x, out); }

void quantize_block(const float (&x)[32], BlockQ8_0& out) {
  const float d = std::abs(extreme(x)) / 127.0f;
  const float id = inverse(d);
  out.d = f32_to_f16(d);
  for (int j = 0; j < 32; ++j) {
    const float v = x[j] * id;  // |v| <= 127.0001; halves round away from zero
    const float magnitude = std::abs(v);
    const int whole = truncate(magnitude, 127);
    const int q = whole + (magnitude - static_cast<float>(whole) >= 0.5f ? 1 : 0);
    out.qs[j] = static_cast<std::int8_t>(v < 0.0f ? -q : q);
  }
}

void quantize_block(const float (&x)[128], BlockQ1_0& out) {
  out = {};
  float sum = 0;
  for (std::size_t j = 0; j < 128; ++j) {
    sum += std::abs(x[j]);
    out.qs[j / 8] |= static_cast<std::uint8_t>((x[j] >= 0 ? 1 : 0) << j % 8);
  }
  out.d = f32_to_f16(sum / 128);
}

void quantize_block(const float (&x)[64], BlockQ2_0& out) {
  out = {};
  float d = 0;
  for (const float value : x) d = std::max(d, std::abs(value));
  const float id = inverse(d);
  for (std::size_t j = 0; j < 64; ++j)
    out.qs[j / 4] |= static_cast<std::uint8_t>((std::lround(x[j] * id) + 1) << 2 * (j % 4));
  out.d = f32_to_f16(d);
}

}  // namespace llm
