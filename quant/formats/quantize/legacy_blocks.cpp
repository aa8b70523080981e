#include "quant/formats/quantize/legacy_blocks.h"

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

struct Range {
  float min;
  float max;
};

Range range_of(const float (&x)[32]) {
  Range range{x[0], x[0]};
  for (const float value : x) {
    range.min = value < range.min ? value : range.min;
    range.max = value > range.max ? value : range.max;
  }
  return range;
}

/// Symmetric codes around `offset` = 2^(bits - 1). The extreme weight gets code 0, which is the
/// larger side of the two's complement range, so d has the opposite sign of that weight.
float symmetric_codes(const float (&x)[32], int offset, int (&codes)[32]) {
  const float d = extreme(x) / static_cast<float>(-offset);
  const float id = inverse(d);
  for (int j = 0; j < 32; ++j) {
    codes[j] = truncate(x[j] * id + (static_cast<float>(offset) + 0.5f), 2 * offset - 1);
  }
  return d;
}

struct Affine {
  float min;  ///< weight of code 0
  float d;
};

/// Codes 0 .. highest over [min, max].
Affine affine_codes(const float (&x)[32], int highest, int (&codes)[32]) {
  const Range range = range_of(x);
  const float d = (range.max - range.min) / static_cast<float>(highest);
  const float id = inverse(d);
  for (int j = 0; j < 32; ++j) codes[j] = truncate((x[j] - range.min) * id + 0.5f, highest);
  return {range.min, d};
}

void store_nibbles(const int (&codes)[32], std::uint8_t (&qs)[16]) {
  for (int j = 0; j < 16; ++j) {
    qs[j] = static_cast<std::uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
  }
}

void store_fifth_bits(const int (&codes)[32], std::uint8_t (&qh)[4]) {
  for (int i = 0; i < 4; ++i) {
    unsigned byte = 0;
    for (int bit = 0; bit < 8; ++bit) byte |= static_cast<unsigned>(codes[8 * i + bit] >> 4) << bit;
    qh[i] = static_cast<std::uint8_t>(byte);
  }
}

}  // namespace

void quantize_block(const float (&x)[32], BlockQ4_0& out) {
  int codes[32];
  out.d = f32_to_f16(symmetric_codes(x, 8, codes));
  store_nibbles(codes, out.qs);
}

void quantize_block(const float (&x)[32], BlockQ5_0& out) {
  int codes[32];
  out.d = f32_to_f16(symmetric_codes(x, 16, codes));
  store_nibbles(codes, out.qs);
  store_fifth_bits(codes, out.qh);
}

void quantize_block(const float (&x)[32], BlockQ4_1& out) {
  int codes[32];
  const auto [min, d] = affine_codes(x, 15, codes);
  out.d = f32_to_f16(d);
  out.m = f32_to_f16(min);
  store_nibbles(codes, out.qs);
}

void quantize_block(const float (&x)[32], BlockQ5_1& out) {
  int codes[32];
  const auto [min, d] = affine_codes(x, 31, codes);
  out.d = f32_to_f16(d);
  out.m = f32_to_f16(min);
  store_nibbles(codes, out.qs);
  store_fifth_bits(codes, out.qh);
}

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

}  // namespace llm
