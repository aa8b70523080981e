#pragma once

#include <bit>
#include <cstdint>

namespace llm {

// Conversions between f32 and narrower float formats, as bit patterns. Rounding is to nearest
// even, denormals are kept in both directions, overflow gives infinity. A NaN stays a NaN with its
// sign and the leading payload bits, and is made quiet; that is what F16C and AVX-512 do too, so
// vector code that uses those instructions has equal bits.

/// The f32 with the value of the IEEE binary16 bit pattern `h`. Exact.
constexpr float f16_to_f32(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t magnitude = h & 0x7FFFu;
  std::uint32_t bits = 0;
  if (magnitude >= 0x7C00) {
    const std::uint32_t quiet = magnitude > 0x7C00 ? 0x0040'0000u : 0u;
    bits = 0x7F80'0000u | quiet | (magnitude & 0x03FFu) << 13;
  } else if (magnitude >= 0x0400) {
    bits = (magnitude << 13) + ((127u - 15u) << 23);
  } else {
    bits = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  }
  return std::bit_cast<float>(sign | bits);
}

/// The binary16 bit pattern nearest to `value`; magnitudes of 65520 and more give infinity.
constexpr std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFF'FFFFu;
  std::uint32_t half = 0;
  if (magnitude > 0x7F80'0000u) {
    half = 0x7E00u | (magnitude >> 13 & 0x03FFu);
  } else if (magnitude >= 0x4780'0000u) {  // 2^16
    half = 0x7C00u;
  } else if (magnitude >= 0x3880'0000u) {  // 2^-14, the least normal f16
    // Adding half a unit less one, plus the bit that will be last, rounds to nearest even; a carry
    // runs into the exponent, up to the pattern of infinity.
    const std::uint32_t rebiased = magnitude - ((127u - 15u) << 23);
    half = (rebiased + 0x0FFFu + (rebiased >> 13 & 1u)) >> 13;
  } else {
    // One unit in the last place of a float in [0.5, 1) is 2^-24, the spacing of f16 denormals: the
    // addition itself rounds to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5f);
  }
  return static_cast<std::uint16_t>(sign | half);
}

/// The f32 with the value of the bfloat16 bit pattern `b`. Exact, NaN patterns unchanged.
constexpr float bf16_to_f32(std::uint16_t b) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16);
}

/// Half of the power of two whose exponent, biased by 127, is `e`: 2^(e - 128). Exact; 2^-128 and
/// 2^-127 are denormal.
constexpr float e8m0_half_to_f32(std::uint8_t e) {
  const auto power = [](std::uint32_t biased) { return std::bit_cast<float>(biased << 23); };
  const std::uint32_t half = e / 2U;
  return power(half + 63) * power(e - half + 63);
}

/// Half of the value of a float without a sign, with four bits of exponent (biased by 7) and three
/// of mantissa. Exact, and an f16 holds it as well. Bit 7 does not count; 127, which stands for
/// NaN, is 0, as in ggml.
constexpr float ue4m3_half_to_f32(std::uint8_t e) {
  const std::uint32_t exponent = e >> 3 & 15U;
  const auto mantissa = static_cast<float>(e & 7U);
  if (e == 0x7F) return 0;
  if (exponent == 0) return mantissa * 0x1p-10F;
  return (8 + mantissa) * std::bit_cast<float>((exponent + 116) << 23);
}

/// The bfloat16 bit pattern nearest to `value`.
constexpr std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFF'FFFFu) > 0x7F80'0000u) {
    return static_cast<std::uint16_t>(bits >> 16 | 0x0040u);
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace llm
