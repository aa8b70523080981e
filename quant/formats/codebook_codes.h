#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/formats/codebook_blocks.h"

/// The integers that blocks of three values and of codebooks hold; part of codes.h.

namespace llm::contract {

/// Number i of little-endian words, half-words and nibbles.
inline std::uint32_t word_of(const std::uint8_t* bytes, std::size_t i) {
  const std::uint8_t* b = bytes + 4 * i;
  return b[0] | std::uint32_t{b[1]} << 8 | std::uint32_t{b[2]} << 16 | std::uint32_t{b[3]} << 24;
}
inline unsigned half_of(const std::uint8_t* bytes, std::size_t i) {
  return bytes[2 * i] | unsigned{bytes[2 * i + 1]} << 8;
}
inline unsigned nibble_of(const std::uint8_t* bytes, std::size_t i) {
  return bytes[i / 2] >> (4 * (i % 2)) & 15U;
}

// ---- three values

/// Digit n of a byte that is a fraction in base 3.
inline int base3_digit(std::uint8_t byte, std::size_t n) {
  constexpr std::uint8_t kPowers[] = {1, 3, 9, 27, 81};
  return static_cast<std::uint8_t>(byte * kPowers[n]) * 3 >> 8;
}

inline int code(const BlockTQ1_0& b, std::size_t j) {
  if (j < 160) return base3_digit(b.qs[j % 32], j / 32) - 1;
  if (j < 240) return base3_digit(b.qs[32 + j % 16], (j - 160) / 16) - 1;
  return base3_digit(b.qh[j % 4], (j - 240) / 4) - 1;
}
inline int code(const BlockTQ2_0& b, std::size_t j) {
  return (b.qs[32 * (j / 128) + j % 32] >> (2 * (j % 128 / 32)) & 3) - 1;
}

// ---- codebooks

/// Which entry of kBook has weights i * kEntryWeights and following.
inline unsigned entry(const BlockIQ3_S& b, std::size_t i) {
  return b.qs[i] | (b.qh[i / 8] >> i % 8 & 1U) << 8;
}
inline unsigned entry(const BlockIQ3_XXS& b, std::size_t i) { return b.qs[i]; }
inline unsigned entry(const BlockIQ2_S& b, std::size_t i) {
  return b.qs[i] | (b.qh[i / 4] >> (2 * (i % 4)) & 3U) << 8;
}
inline unsigned entry(const BlockIQ2_XS& b, std::size_t i) { return half_of(b.qs, i) & 511; }
inline unsigned entry(const BlockIQ2_XXS& b, std::size_t i) { return b.qs[8 * (i / 4) + i % 4]; }
inline unsigned entry(const BlockIQ1_S& b, std::size_t i) {
  return b.qs[i] | (half_of(b.qh, i / 4) >> (3 * (i % 4)) & 7) << 8;
}
inline unsigned entry(const BlockIQ1_M& b, std::size_t i) {
  return b.qs[i] | (nibble_of(b.qh, i) & 7) << 8;
}

/// Seven signs with the eighth that makes their number even.
inline unsigned even_signs(unsigned seven) {
  constexpr unsigned kParities = 0x6996;  // of each four bits
  return seven | (kParities >> ((seven ^ seven >> 4) & 15) & 1U) << 7;
}

/// The signs of weights 8i .. 8i + 7: bit k says whether weight 8i + k is negative.
inline unsigned sign_bits(const BlockIQ3_S& b, std::size_t i) { return b.signs[i]; }
inline unsigned sign_bits(const BlockIQ3_XXS& b, std::size_t i) {
  return even_signs(word_of(b.scales, i / 4) >> (7 * (i % 4)) & 127);
}
inline unsigned sign_bits(const BlockIQ2_S& b, std::size_t i) { return b.signs[i]; }
inline unsigned sign_bits(const BlockIQ2_XS& b, std::size_t i) {
  return even_signs(half_of(b.qs, i) >> 9);
}
inline unsigned sign_bits(const BlockIQ2_XXS& b, std::size_t i) {
  return even_signs(word_of(b.qs, 2 * (i / 4) + 1) >> (7 * (i % 4)) & 127);
}

/// What is added to the values of weights 8i .. 8i + 7: 1 or -1.
inline int delta(const BlockIQ1_S& b, std::size_t i) {
  return (half_of(b.qh, i / 4) >> 15) != 0 ? -1 : 1;
}
inline int delta(const BlockIQ1_M& b, std::size_t i) {
  return (nibble_of(b.qh, i) >> 3) != 0 ? -1 : 1;
}

template <HasCodebook Block>
int code(const Block& b, std::size_t j) {
  constexpr std::size_t kEntry = Block::kEntryWeights;
  constexpr std::size_t kBits = kEntry == 8 ? 2 : 3;
  const unsigned indices = Block::kBook[entry(b, j / kEntry)];
  const int value = Block::kBookValues[indices >> (kBits * (j % kEntry)) & ((1U << kBits) - 1)];
  if constexpr (requires { delta(b, j); }) {
    return value + delta(b, j / 8);
  } else {
    return (sign_bits(b, j / 8) >> j % 8 & 1U) != 0 ? -value : value;
  }
}

// ---- scales

/// The f16 whose four nibbles lie in the highest bits of the scales.
inline std::uint16_t iq1_m_scale_bits(const BlockIQ1_M& b) {
  unsigned bits = 0;
  for (std::size_t i = 0; i < 4; ++i) bits |= half_of(b.scales, i) >> 12 << (4 * i);
  return static_cast<std::uint16_t>(bits);
}
inline void set_iq1_m_scale_bits(BlockIQ1_M& b, std::uint16_t bits) {
  for (std::size_t i = 0; i < 4; ++i) {
    std::uint8_t& high = b.scales[2 * i + 1];
    high = static_cast<std::uint8_t>((high & 15U) | (bits >> (4 * i) & 15U) << 4);
  }
}

/// The integer scale of sub-block s, as it is stored; 2 of it and 1 is the factor.
inline unsigned stored_scale(const BlockIQ3_S& b, std::size_t s) { return nibble_of(b.scales, s); }
inline unsigned stored_scale(const BlockIQ3_XXS& b, std::size_t s) {
  return word_of(b.scales, s) >> 28;
}
inline unsigned stored_scale(const BlockIQ2_S& b, std::size_t s) { return nibble_of(b.scales, s); }
inline unsigned stored_scale(const BlockIQ2_XS& b, std::size_t s) { return nibble_of(b.scales, s); }
inline unsigned stored_scale(const BlockIQ2_XXS& b, std::size_t s) {
  return word_of(b.qs, 2 * s + 1) >> 28;
}
inline unsigned stored_scale(const BlockIQ1_S& b, std::size_t s) {
  return half_of(b.qh, s) >> 12 & 7;
}
inline unsigned stored_scale(const BlockIQ1_M& b, std::size_t s) {
  return half_of(b.scales, s / 4) >> (3 * (s % 4)) & 7;
}

}  // namespace llm::contract
