#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/formats/block_formats.h"

/// The 6-bit integers that the scale bytes of some blocks hold, and how to pack them.

namespace llm {

/// Scale and min of one sub-block, each in [0, 63].
struct ScaleMin {
  std::uint8_t scale;
  std::uint8_t min;
};

/// Sub-block s in [0, 8) of the 12 scale bytes of Q4_K and Q5_K. Bytes 0-3 and 4-7 hold the scales
/// and mins of s < 4 in their low six bits. For s >= 4 the low four bits of scale and min are the
/// nibbles of byte s + 4, the high two bits are the top bits of bytes s - 4 (scale) and s (min).
constexpr ScaleMin k_scale_min(const std::uint8_t (&packed)[12], std::size_t s) {
  if (s < 4) {
    return {static_cast<std::uint8_t>(packed[s] & 63),
            static_cast<std::uint8_t>(packed[s + 4] & 63)};
  }
  return {static_cast<std::uint8_t>((packed[s + 4] & 15) | (packed[s - 4] >> 6) << 4),
          static_cast<std::uint8_t>(packed[s + 4] >> 4 | (packed[s] >> 6) << 4)};
}

/// The inverse of k_scale_min() for all eight sub-blocks. @pre every value <= 63
constexpr void pack_k_scale_mins(const ScaleMin (&unpacked)[8], std::uint8_t (&packed)[12]) {
  for (std::size_t s = 0; s < 4; ++s) {
    const ScaleMin low = unpacked[s];
    const ScaleMin high = unpacked[s + 4];
    packed[s] = static_cast<std::uint8_t>(low.scale | (high.scale >> 4) << 6);
    packed[s + 4] = static_cast<std::uint8_t>(low.min | (high.min >> 4) << 6);
    packed[s + 8] = static_cast<std::uint8_t>((high.scale & 15) | (high.min & 15) << 4);
  }
}

/// Scale s in [0, 16) of Q3_K's 12 scale bytes, in [0, 63]; 32 is to be subtracted. The low four
/// bits are a nibble of byte s % 8 (low for s < 8), the high two are bit pair s / 4 of byte 8 + s
/// % 4.
constexpr int q3_k_scale(const std::uint8_t (&packed)[12], std::size_t s) {
  const int low = packed[s % 8] >> (s < 8 ? 0 : 4) & 15;
  const int high = packed[8 + s % 4] >> (2 * (s / 4)) & 3;
  return low | high << 4;
}

/// The inverse of q3_k_scale() for all sixteen sub-blocks. @pre every value <= 63
constexpr void pack_q3_k_scales(const std::uint8_t (&unpacked)[16], std::uint8_t (&packed)[12]) {
  for (std::size_t i = 0; i < 8; ++i) {
    packed[i] = static_cast<std::uint8_t>((unpacked[i] & 15) | (unpacked[i + 8] & 15) << 4);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    packed[8 + i] =
        static_cast<std::uint8_t>(unpacked[i] >> 4 | (unpacked[i + 4] >> 4) << 2 |
                                  (unpacked[i + 8] >> 4) << 4 | (unpacked[i + 12] >> 4) << 6);
  }
}

/// Scale s in [0, 8) of IQ4_XS, in [0, 63]; 32 is to be subtracted. The low four bits are nibble s
/// of scales_l, the high two are bit pair s of scales_h.
constexpr int iq4_xs_scale(const BlockIQ4_XS& block, std::size_t s) {
  const int low = block.scales_l[s / 2] >> (4 * (s % 2)) & 15;
  const int high = block.scales_h[s / 4] >> (2 * (s % 4)) & 3;
  return low | high << 4;
}

/// The inverse of iq4_xs_scale() for all eight sub-blocks. @pre every value <= 63
constexpr void pack_iq4_xs_scales(const std::uint8_t (&unpacked)[8], BlockIQ4_XS& block) {
  for (std::size_t i = 0; i < 4; ++i) {
    block.scales_l[i] =
        static_cast<std::uint8_t>((unpacked[2 * i] & 15) | (unpacked[2 * i + 1] & 15) << 4);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint8_t* four = unpacked + 4 * i;
    block.scales_h[i] = static_cast<std::uint8_t>(four[0] >> 4 | (four[1] >> 4) << 2 |
                                                  (four[2] >> 4) << 4 | (four[3] >> 4) << 6);
  }
}

}  // namespace llm
