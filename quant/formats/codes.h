#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "quant/formats/block_formats.h"
#include "quant/formats/codebook_codes.h"
#include "quant/formats/half.h"
#include "quant/formats/packed_scales.h"

/// The integer part of a block in the order of its weights, as quant/formats/block_formats.h states
/// it: codes with the type's constant offset subtracted (of kValues: the values they stand for),
/// and the integer scales of its sub-blocks. One reading of the bytes, shared by dequantization and
/// dot products.

namespace llm::contract {

template <typename Block>
using Codes = std::array<std::int8_t, Block::kWeights>;

inline std::int8_t as_code(int q) { return static_cast<std::int8_t>(q); }

/// The 32 four-bit codes of the layout shared by Q4_0, Q4_1, Q5_0 and Q5_1.
inline int nibble_of_32(const std::uint8_t (&qs)[16], std::size_t j) {
  return j < 16 ? qs[j] & 15 : qs[j - 16] >> 4;
}

/// Bit j of 32 little-endian bits.
inline int bit_of_32(const std::uint8_t (&qh)[4], std::size_t j) { return qh[j / 8] >> j % 8 & 1; }

/// The 256 two-bit codes of the layout shared by Q2_K, Q3_K and (for its high bits) Q6_K.
inline int bit_pair_of_256(const std::uint8_t (&qs)[64], std::size_t j) {
  return qs[32 * (j / 128) + j % 32] >> (2 * (j % 128 / 32)) & 3;
}

/// The 256 four-bit codes of the layout shared by Q4_K and Q5_K.
inline int nibble_of_256(const std::uint8_t (&qs)[128], std::size_t j) {
  const std::uint8_t byte = qs[32 * (j / 64) + j % 32];
  return j % 64 < 32 ? byte & 15 : byte >> 4;
}

/// Bit j of 256 bits in the layout shared by Q3_K's hmask and Q5_K's qh.
inline int bit_of_256(const std::uint8_t (&bits)[32], std::size_t j) {
  return bits[j % 32] >> j / 32 & 1;
}

inline int code(const BlockQ4_0& b, std::size_t j) { return nibble_of_32(b.qs, j) - 8; }
inline int code(const BlockQ4_1& b, std::size_t j) { return nibble_of_32(b.qs, j); }
inline int code(const BlockQ5_0& b, std::size_t j) {
  return (nibble_of_32(b.qs, j) | bit_of_32(b.qh, j) << 4) - 16;
}
inline int code(const BlockQ5_1& b, std::size_t j) {
  return nibble_of_32(b.qs, j) | bit_of_32(b.qh, j) << 4;
}
inline int code(const BlockQ8_0& b, std::size_t j) { return b.qs[j]; }
inline int code(const BlockQ2_K& b, std::size_t j) { return bit_pair_of_256(b.qs, j); }
inline int code(const BlockQ3_K& b, std::size_t j) {
  return bit_pair_of_256(b.qs, j) - (bit_of_256(b.hmask, j) != 0 ? 0 : 4);
}
inline int code(const BlockQ4_K& b, std::size_t j) { return nibble_of_256(b.qs, j); }
inline int code(const BlockQ5_K& b, std::size_t j) {
  return nibble_of_256(b.qs, j) | bit_of_256(b.qh, j) << 4;
}
inline int code(const BlockQ6_K& b, std::size_t j) {
  const std::uint8_t low = b.ql[64 * (j / 128) + j % 64];
  return ((j % 128 < 64 ? low & 15 : low >> 4) | bit_pair_of_256(b.qh, j) << 4) - 32;
}
inline int code(const BlockQ8_K& b, std::size_t j) { return b.qs[j]; }
inline int code(const BlockIQ4_NL& b, std::size_t j) { return b.kValues[nibble_of_32(b.qs, j)]; }
inline int code(const BlockIQ4_XS& b, std::size_t j) {
  const std::uint8_t byte = b.qs[16 * (j / 32) + j % 16];
  return b.kValues[j % 32 < 16 ? byte & 15 : byte >> 4];
}
inline int code(const BlockMXFP4& b, std::size_t j) { return b.kValues[nibble_of_32(b.qs, j)]; }
inline int code(const BlockNVFP4& b, std::size_t j) {
  const std::uint8_t byte = b.qs[8 * (j / 16) + j % 8];
  return b.kValues[j % 16 < 8 ? byte & 15 : byte >> 4];
}
inline int code(const BlockQ1_0& b, std::size_t j) { return 2 * (b.qs[j / 8] >> j % 8 & 1) - 1; }
inline int code(const BlockQ2_0& b, std::size_t j) { return (b.qs[j / 4] >> 2 * (j % 4) & 3) - 1; }

/// All codes of a block in the order of its weights.
template <typename Block>
Codes<Block> unpack_codes(const Block& block) {
  Codes<Block> codes;
  for (std::size_t j = 0; j < Block::kWeights; ++j) codes[j] = as_code(code(block, j));
  return codes;
}

inline float scale_value(float d) { return d; }
inline float scale_value(std::uint16_t d) { return f16_to_f32(d); }
inline float scale_value(std::uint8_t d) { return e8m0_half_to_f32(d); }

/// The scale of a block.
template <typename Block>
float block_scale(const Block& block) {
  if constexpr (requires { Block::kScaleUnit; }) {
    return scale_value(block.d) * Block::kScaleUnit;
  } else {
    return scale_value(block.d);
  }
}
inline float block_scale(const BlockIQ1_M& block) {
  return scale_value(iq1_m_scale_bits(block)) * BlockIQ1_M::kScaleUnit;
}
/// The scale of weights 16s .. 16s + 15.
inline float scale_of_16(const BlockNVFP4& block, std::size_t s) {
  return ue4m3_half_to_f32(block.scales[s]);
}

/// Integer scale and min of a sub-block; min is 0 in types without one.
struct SubScale {
  int scale;
  int min;
};

inline SubScale sub_scale(const BlockQ2_K& b, std::size_t s) {
  return {b.scales[s] & 15, b.scales[s] >> 4};
}
inline SubScale sub_scale(const BlockQ3_K& b, std::size_t s) {
  return {q3_k_scale(b.scales, s) - 32, 0};
}
inline SubScale sub_scale(const BlockQ4_K& b, std::size_t s) {
  const ScaleMin packed = k_scale_min(b.scales, s);
  return {packed.scale, packed.min};
}
inline SubScale sub_scale(const BlockQ5_K& b, std::size_t s) {
  const ScaleMin packed = k_scale_min(b.scales, s);
  return {packed.scale, packed.min};
}
inline SubScale sub_scale(const BlockQ6_K& b, std::size_t s) { return {b.scales[s], 0}; }
inline SubScale sub_scale(const BlockIQ4_XS& b, std::size_t s) {
  return {iq4_xs_scale(b, s) - 32, 0};
}
template <HasCodebook Block>
SubScale sub_scale(const Block& b, std::size_t s) {
  return {static_cast<int>(2 * stored_scale(b, s) + 1), 0};
}

}  // namespace llm::contract
