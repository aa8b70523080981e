#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/formats/block_traits.h"
#include "quant/formats/codebooks.h"

/// The blocks of 256 weights that need less than three and a half bits for one: of three values
/// (TQ), and of codebooks (IQ). Part of block_formats.h, which says how to read this.
///
/// Of formats with a codebook also kBook, kBookValues and kEntryWeights (weights of an entry) are
/// stated, and of those whose scale is a part of the f16 `d` kScaleUnit: "d" of the formulas is
/// kScaleUnit times its value. entry(), sign_bits(), delta() and sub_scale() (codebook_codes.h)
/// read the bytes.

namespace llm {

inline constexpr std::int8_t kIq1Values[4] = {-8, 0, 8, 0};  ///< the last of four is not used
inline constexpr std::int8_t kIq2Values[4] = {8, 25, 43, 0};
inline constexpr std::int8_t kIq3XxsValues[8] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::int8_t kIq3SValues[8] = {1, 3, 5, 7, 9, 11, 13, 15};

/// 256 weights of the values -1, 0 and 1. 54 bytes, 1.6875 bits per weight. A byte holds five of
/// them (four in qh) as a fraction in base 3: digit n of byte b is ((b * 3^n mod 256) * 3) / 256,
/// rounded down. Weights 32n + l of the first 160 are digit n of qs[l], weights 160 + 16n + l
/// digit n of qs[32 + l], weights 240 + 4n + l digit n of qh[l].
///
///   weight[j] = d * (digit[j] - 1)
struct BlockTQ1_0 : BlockFormat<WeightType::kTQ1_0, "TQ1_0", 256, 54> {
  std::uint8_t qs[48];  ///< five digits each
  std::uint8_t qh[4];   ///< four digits each
  std::uint16_t d;      ///< scale, f16
};

/// 256 weights of the values -1, 0, 1 and 2 (which no quantizer writes). 66 bytes, 2.0625 bits per
/// weight. Codes lie as in Q2_K.
///
///   weight[j] = d * (q[j] - 1)
struct BlockTQ2_0 : BlockFormat<WeightType::kTQ2_0, "TQ2_0", 256, 66> {
  std::uint8_t qs[64];  ///< 2-bit codes
  std::uint16_t d;      ///< scale, f16
};

/// 256 weights in 8 sub-blocks of 32 with a 4-bit scale. 110 bytes, 3.4375 bits per weight. Entry i
/// has the magnitudes of weights 4i .. 4i + 3; bit j of signs, read from the lowest of byte 0 on,
/// is weight j's.
///
///   s = j / 32
///   weight[j] = (d * (2 * scale[s] + 1)) * q[j]
struct BlockIQ3_S : BlockFormat<WeightType::kIQ3_S, "IQ3_S", 256, 110> {
  static constexpr std::size_t kSubBlock = 32;
  static constexpr std::size_t kEntryWeights = 4;
  static constexpr auto& kBook = kIq3SBook;
  static constexpr auto& kBookValues = kIq3SValues;
  std::uint16_t d;         ///< scale of the scales, f16
  std::uint8_t qs[64];     ///< low eight bits of the entries
  std::uint8_t qh[8];      ///< ninth bits
  std::uint8_t signs[32];  ///< a bit each
  std::uint8_t scales[4];  ///< 4-bit scales
};

/// 256 weights in 8 sub-blocks of 32 with a 4-bit scale. 98 bytes, 3.0625 bits per weight. A
/// little-endian word of a sub-block has its scale in the highest four bits, and below it seven
/// bits for each eight weights: the signs of the first seven. The eighth's makes the number of
/// negative ones even.
///
///   s = j / 32
///   weight[j] = (d * (2 * scale[s] + 1)) * q[j]
struct BlockIQ3_XXS : BlockFormat<WeightType::kIQ3_XXS, "IQ3_XXS", 256, 98> {
  static constexpr std::size_t kSubBlock = 32;
  static constexpr std::size_t kEntryWeights = 4;
  static constexpr float kScaleUnit = 0.25F;
  static constexpr auto& kBook = kIq3XxsBook;
  static constexpr auto& kBookValues = kIq3XxsValues;
  std::uint16_t d;          ///< scale of the scales, f16
  std::uint8_t qs[64];      ///< entries
  std::uint8_t scales[32];  ///< a word for each sub-block: signs and scale
};

/// 256 weights in 16 sub-blocks of 16 with a 4-bit scale. 82 bytes, 2.5625 bits per weight. Signs
/// as in IQ3_S.
///
///   s = j / 16
///   weight[j] = (d * (2 * scale[s] + 1)) * q[j]
struct BlockIQ2_S : BlockFormat<WeightType::kIQ2_S, "IQ2_S", 256, 82> {
  static constexpr std::size_t kSubBlock = 16;
  static constexpr std::size_t kEntryWeights = 8;
  static constexpr float kScaleUnit = 0.125F;
  static constexpr auto& kBook = kIq2SBook;
  static constexpr auto& kBookValues = kIq2Values;
  std::uint16_t d;         ///< scale of the scales, f16
  std::uint8_t qs[32];     ///< low eight bits of the entries
  std::uint8_t signs[32];  ///< a bit each
  std::uint8_t qh[8];      ///< high two bits of the entries
  std::uint8_t scales[8];  ///< 4-bit scales
};

/// 256 weights in 16 sub-blocks of 16 with a 4-bit scale. 74 bytes, 2.3125 bits per weight. A
/// little-endian half-word of eight weights has nine bits of entry, and seven of signs as in
/// IQ3_XXS above them.
///
///   s = j / 16
///   weight[j] = (d * (2 * scale[s] + 1)) * q[j]
struct BlockIQ2_XS : BlockFormat<WeightType::kIQ2_XS, "IQ2_XS", 256, 74> {
  static constexpr std::size_t kSubBlock = 16;
  static constexpr std::size_t kEntryWeights = 8;
  static constexpr float kScaleUnit = 0.125F;
  static constexpr auto& kBook = kIq2XsBook;
  static constexpr auto& kBookValues = kIq2Values;
  std::uint16_t d;         ///< scale of the scales, f16
  std::uint8_t qs[64];     ///< a half-word for each eight weights
  std::uint8_t scales[8];  ///< 4-bit scales
};

/// 256 weights in 8 sub-blocks of 32 with a 4-bit scale. 66 bytes, 2.0625 bits per weight. Eight
/// bytes of a sub-block are its four entries and a word as in IQ3_XXS.
///
///   s = j / 32
///   weight[j] = (d * (2 * scale[s] + 1)) * q[j]
struct BlockIQ2_XXS : BlockFormat<WeightType::kIQ2_XXS, "IQ2_XXS", 256, 66> {
  static constexpr std::size_t kSubBlock = 32;
  static constexpr std::size_t kEntryWeights = 8;
  static constexpr float kScaleUnit = 0.125F;
  static constexpr auto& kBook = kIq2XxsBook;
  static constexpr auto& kBookValues = kIq2Values;
  std::uint16_t d;      ///< scale of the scales, f16
  std::uint8_t qs[64];  ///< entries, signs and scales
};

/// 256 weights in 8 sub-blocks of 32 with a 3-bit scale. 50 bytes, 1.5625 bits per weight. A
/// little-endian half-word of a sub-block has, from its lowest bit on, the high three bits of its
/// four entries, the scale, and whether delta is -1. A code is eight times the entry's value, and
/// delta.
///
///   s = j / 32
///   weight[j] = (d * (2 * scale[s] + 1)) * (q[j] + delta[s])
struct BlockIQ1_S : BlockFormat<WeightType::kIQ1_S, "IQ1_S", 256, 50> {
  static constexpr std::size_t kSubBlock = 32;
  static constexpr std::size_t kEntryWeights = 8;
  static constexpr float kScaleUnit = 0.125F;
  static constexpr auto& kBook = kIq1Book;
  static constexpr auto& kBookValues = kIq1Values;
  std::uint16_t d;      ///< scale of the scales, f16
  std::uint8_t qs[32];  ///< low eight bits of the entries
  std::uint8_t qh[16];  ///< a half-word for each sub-block
};

/// 256 weights in 16 sub-blocks of 16 with a 3-bit scale. 56 bytes, 1.75 bits per weight. A nibble
/// of qh, for each eight weights, has the high three bits of the entry and whether delta is -1. A
/// little-endian half-word of scales has those of four sub-blocks and above them four bits of the
/// f16 d, the first half-word its lowest (iq1_m_scale_bits()).
///
///   s = j / 16
///   weight[j] = (d * (2 * scale[s] + 1)) * (q[j] + delta[j / 8])
struct BlockIQ1_M : BlockFormat<WeightType::kIQ1_M, "IQ1_M", 256, 56> {
  static constexpr std::size_t kSubBlock = 16;
  static constexpr std::size_t kEntryWeights = 8;
  static constexpr float kScaleUnit = 0.125F;
  static constexpr auto& kBook = kIq1Book;
  static constexpr auto& kBookValues = kIq1Values;
  std::uint8_t qs[32];     ///< low eight bits of the entries
  std::uint8_t qh[16];     ///< a nibble for each eight weights
  std::uint8_t scales[8];  ///< 3-bit scales and d
};

/// Formats whose codes are entries of a codebook.
template <typename Block>
concept HasCodebook = requires {
  Block::kBook;
};

}  // namespace llm
