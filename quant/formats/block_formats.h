#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/formats/block_traits.h"
#include "quant/formats/codebook_blocks.h"

/// The blocks of weights as they lie in a GGUF file, little-endian. In the formulas `d`, `m` and
/// `dmin` stand for the f32 value of the f16 field, j counts weights in the block, and every
/// product and sum is rounded to f32 once, in the order the parentheses and precedence give
/// (docs/formats.md). A row may start at any byte: load blocks with memcpy.
///
/// Source of the layouts: ggml's block structs (ggml-common.h, MIT) and the `gguf` Python package;
/// pinned by golden bytes in tests/quant/dequantize_test.cpp.

///
/// Of a format whose sub-blocks have integer scales, kSubBlock (weights of a sub-block) is stated.
/// Members called `d`, `m` and `dmin` are the scale and what is added or subtracted, an f16 where
/// they are a std::uint16_t and a power of two (e8m0_half_to_f32()) where a std::uint8_t. Where
/// codes are indices of values, kValues has these.

namespace llm {

/// What the codes of the IQ4 types stand for.
inline constexpr std::int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
/// Twice the values of a float with one sign bit, two of exponent and one of mantissa (E2M1). -0 is
/// 0.
inline constexpr std::int8_t kE2m1Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                0, -1, -2, -3, -4, -6, -8, -12};

/// One f32 weight.
struct BlockF32 : BlockFormat<WeightType::kF32, "F32", 1, 4> {
  float value;
};

/// One IEEE binary16 weight.
struct BlockF16 : BlockFormat<WeightType::kF16, "F16", 1, 2> {
  std::uint16_t bits;
};

/// One bfloat16 weight: the upper half of an f32.
struct BlockBF16 : BlockFormat<WeightType::kBF16, "BF16", 1, 2> {
  std::uint16_t bits;
};

/// 32 weights that share one scale. 18 bytes, 4.5 bits per weight.
///
///   weight[j]      = d * ((qs[j] & 0x0F) - 8)    for j in [0, 16)
///   weight[j + 16] = d * ((qs[j] >> 4) - 8)
struct BlockQ4_0 : BlockFormat<WeightType::kQ4_0, "Q4_0", 32, 18> {
  std::uint16_t d;      ///< scale, IEEE binary16 bit pattern
  std::uint8_t qs[16];  ///< 4-bit codes
};

/// 32 weights with a scale and an offset. 20 bytes, 5 bits per weight.
///
///   weight[j]      = d * (qs[j] & 0x0F) + m    for j in [0, 16)
///   weight[j + 16] = d * (qs[j] >> 4) + m
struct BlockQ4_1 : BlockFormat<WeightType::kQ4_1, "Q4_1", 32, 20> {
  std::uint16_t d;      ///< scale, f16
  std::uint16_t m;      ///< weight of code 0, f16
  std::uint8_t qs[16];  ///< 4-bit codes
};

/// 32 weights that share one scale. 22 bytes, 5.5 bits per weight. Low four bits of the codes as in
/// Q4_0; bit j of qh, read as a little-endian u32, is the fifth bit of weight j.
///
///   weight[j] = d * ((low[j] | high[j] << 4) - 16)
struct BlockQ5_0 : BlockFormat<WeightType::kQ5_0, "Q5_0", 32, 22> {
  std::uint16_t d;      ///< scale, f16
  std::uint8_t qh[4];   ///< fifth bits
  std::uint8_t qs[16];  ///< low four bits
};

/// 32 weights with a scale and an offset. 24 bytes, 6 bits per weight. Codes as in Q5_0.
///
///   weight[j] = d * (low[j] | high[j] << 4) + m
struct BlockQ5_1 : BlockFormat<WeightType::kQ5_1, "Q5_1", 32, 24> {
  std::uint16_t d;      ///< scale, f16
  std::uint16_t m;      ///< weight of code 0, f16
  std::uint8_t qh[4];   ///< fifth bits
  std::uint8_t qs[16];  ///< low four bits
};

/// 32 weights that share one scale. 34 bytes, 8.5 bits per weight.
///
///   weight[j] = d * qs[j]
struct BlockQ8_0 : BlockFormat<WeightType::kQ8_0, "Q8_0", 32, 34> {
  std::uint16_t d;     ///< scale, f16
  std::int8_t qs[32];  ///< codes; -128 is valid although no quantizer writes it
};

/// 256 weights in 16 sub-blocks of 16, each with a 4-bit scale and a 4-bit min. 84 bytes, 2.625
/// bits per weight. The two halves of 128 weights have 32 bytes of qs each; byte l of half h holds
/// the codes of weights 128h + l + {0, 32, 64, 96} in ascending bit pairs.
///
///   s = j / 16
///   weight[j] = (d * (scales[s] & 0x0F)) * q[j] - (dmin * (scales[s] >> 4))
struct BlockQ2_K : BlockFormat<WeightType::kQ2_K, "Q2_K", 256, 84> {
  static constexpr std::size_t kSubBlock = 16;
  std::uint8_t scales[16];  ///< low nibble: scale; high nibble: min
  std::uint8_t qs[64];      ///< 2-bit codes
  std::uint16_t d;          ///< scale of the scales, f16
  std::uint16_t dmin;       ///< scale of the mins, f16
};

/// 256 weights in 16 sub-blocks of 16, each with a 6-bit scale. 110 bytes, 3.4375 bits per weight.
/// Low two bits of the codes as in Q2_K; bit k of hmask[l] belongs to weight 32k + l, and a weight
/// whose bit is *clear* has 4 subtracted.
///
///   s = j / 16
///   weight[j] = (d * (scale[s] - 32)) * (low[j] - (high[j] ? 0 : 4))
///
/// scale[s] is read by q3_k_scale() (packed_scales.h).
struct BlockQ3_K : BlockFormat<WeightType::kQ3_K, "Q3_K", 256, 110> {
  static constexpr std::size_t kSubBlock = 16;
  std::uint8_t hmask[32];   ///< third bits
  std::uint8_t qs[64];      ///< low two bits
  std::uint8_t scales[12];  ///< 16 packed 6-bit scales
  std::uint16_t d;          ///< scale of the scales, f16
};

/// 256 weights in 8 sub-blocks of 32, each with a 6-bit scale and a 6-bit min. 144 bytes, 4.5 bits
/// per weight. Byte 32c + l of qs (c < 4, l < 32) holds weight 64c + l in its low and 64c + 32 + l
/// in its high nibble.
///
///   s = j / 32
///   weight[j] = (d * scale[s]) * q[j] - (dmin * min[s])
///
/// scale[s] and min[s] are read by k_scale_min() (packed_scales.h).
struct BlockQ4_K : BlockFormat<WeightType::kQ4_K, "Q4_K", 256, 144> {
  static constexpr std::size_t kSubBlock = 32;
  std::uint16_t d;          ///< scale of the scales, f16
  std::uint16_t dmin;       ///< scale of the mins, f16
  std::uint8_t scales[12];  ///< 8 packed pairs of 6-bit scale and min
  std::uint8_t qs[128];     ///< 4-bit codes
};

/// 256 weights as in Q4_K with five-bit codes. 176 bytes, 5.5 bits per weight. Bit k of qh[l] is
/// the fifth bit of weight 32k + l.
struct BlockQ5_K : BlockFormat<WeightType::kQ5_K, "Q5_K", 256, 176> {
  static constexpr std::size_t kSubBlock = 32;
  std::uint16_t d;          ///< scale of the scales, f16
  std::uint16_t dmin;       ///< scale of the mins, f16
  std::uint8_t scales[12];  ///< 8 packed pairs of 6-bit scale and min
  std::uint8_t qh[32];      ///< fifth bits
  std::uint8_t qs[128];     ///< low four bits
};

/// 256 weights in 16 sub-blocks of 16, each with an 8-bit signed scale. 210 bytes, 6.5625 bits per
/// weight. Of half h (128 weights): byte 64h + l of ql (l < 64) holds the low four bits of weights
/// 128h + l (low nibble) and 128h + 64 + l (high nibble); byte 32h + l of qh (l < 32) holds the
/// high two bits of weights 128h + l + {0, 32, 64, 96} in ascending bit pairs.
///
///   s = j / 16
///   weight[j] = (d * scales[s]) * ((low[j] | high[j] << 4) - 32)
struct BlockQ6_K : BlockFormat<WeightType::kQ6_K, "Q6_K", 256, 210> {
  static constexpr std::size_t kSubBlock = 16;
  std::uint8_t ql[128];    ///< low four bits
  std::uint8_t qh[64];     ///< high two bits
  std::int8_t scales[16];  ///< sub-block scales
  std::uint16_t d;         ///< scale of the scales, f16
};

/// 256 8-bit codes with an f32 scale and the sums of 16. 292 bytes. In files it is unusual; in
/// memory it is the activation format of the K-quants (quant/formats/activations.h).
///
///   weight[j] = d * qs[j]
struct BlockQ8_K : BlockFormat<WeightType::kQ8_K, "Q8_K", 256, 292> {
  float d;                 ///< scale
  std::int8_t qs[256];     ///< codes
  std::int16_t bsums[16];  ///< sum of qs[16s .. 16s + 15]; not used as weights
};

/// 32 weights that share one scale; a code is the index of one of 16 values. 18 bytes, 4.5 bits per
/// weight. Codes lie as in Q4_0.
///
///   weight[j] = d * kValues[q[j]]
struct BlockIQ4_NL : BlockFormat<WeightType::kIQ4_NL, "IQ4_NL", 32, 18> {
  static constexpr auto& kValues = kIq4Values;
  std::uint16_t d;      ///< scale, f16
  std::uint8_t qs[16];  ///< 4-bit codes
};

/// 256 weights in 8 sub-blocks of 32, each with a 6-bit scale; codes are indices as in IQ4_NL. 136
/// bytes, 4.25 bits per weight. Bytes 16s .. 16s + 15 of qs hold the codes of sub-block s as the
/// block of an IQ4_NL does.
///
///   s = j / 32
///   weight[j] = (d * (scale[s] - 32)) * kValues[q[j]]
///
/// scale[s] is read by iq4_xs_scale() (packed_scales.h).
struct BlockIQ4_XS : BlockFormat<WeightType::kIQ4_XS, "IQ4_XS", 256, 136> {
  static constexpr std::size_t kSubBlock = 32;
  static constexpr auto& kValues = kIq4Values;
  std::uint16_t d;           ///< scale of the scales, f16
  std::uint8_t scales_h[2];  ///< high two bits of the scales
  std::uint8_t scales_l[4];  ///< low four bits of the scales
  std::uint8_t qs[128];      ///< 4-bit codes
};

/// 32 floats of four bits (E2M1) that share one power of two (E8M0). 17 bytes, 4.25 bits per
/// weight. Codes lie as in Q4_0. Source of the numbers: OCP Microscaling Formats (MX) 1.0.
///
///   weight[j] = d * kValues[q[j]]    d = 2^(d's byte - 128)
struct BlockMXFP4 : BlockFormat<WeightType::kMXFP4, "MXFP4", 32, 17> {
  static constexpr auto& kValues = kE2m1Values;
  std::uint8_t d;       ///< scale, a biased exponent; 255, which stands for NaN, is not finite
  std::uint8_t qs[16];  ///< 4-bit codes
};

/// 64 floats of four bits (E2M1) in 4 sub-blocks of 16, each with a float scale without a sign, of
/// four bits of exponent and three of mantissa (UE4M3). 36 bytes, 4.5 bits per weight. Bytes 8s ..
/// 8s + 7 of qs hold the codes of sub-block s: its weight i in the low nibble of byte i, weight 8 +
/// i in the high one.
///
///   s = j / 16
///   weight[j] = d[s] * kValues[q[j]]    d[s] = half of the value of scales[s]
struct BlockNVFP4 : BlockFormat<WeightType::kNVFP4, "NVFP4", 64, 36> {
  static constexpr std::size_t kScaled = 16;  ///< weights that share a scale
  static constexpr auto& kValues = kE2m1Values;
  std::uint8_t scales[4];  ///< UE4M3; 127, which stands for NaN, and those above are not finite
  std::uint8_t qs[32];     ///< 4-bit codes
};

/// 128 signs that share one magnitude. 18 bytes, 1.125 bits per weight.
///
///   weight[j] = d * (bit j mod 8 of qs[j / 8] is set ? 1 : -1)
struct BlockQ1_0 : BlockFormat<WeightType::kQ1_0, "Q1_0", 128, 18> {
  std::uint16_t d;      ///< magnitude, f16
  std::uint8_t qs[16];  ///< signs
};

/// 64 weights that share one scale. 18 bytes, 2.25 bits per weight.
///
///   weight[j] = d * (q[j] - 1)    q[j] = bit pair j mod 4 of qs[j / 4]
struct BlockQ2_0 : BlockFormat<WeightType::kQ2_0, "Q2_0", 64, 18> {
  std::uint16_t d;      ///< scale, f16
  std::uint8_t qs[16];  ///< 2-bit codes
};

template <typename... Blocks>
struct BlockList {
  static constexpr bool kAllOfStatedSize = ((sizeof(Blocks) == Blocks::kBytes) && ...);
};

/// Every format, in ascending id.
using AllBlocks = BlockList<BlockF32, BlockF16, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1,
                            BlockQ8_0, BlockQ2_K, BlockQ3_K, BlockQ4_K, BlockQ5_K, BlockQ6_K,
                            BlockQ8_K, BlockIQ2_XXS, BlockIQ2_XS, BlockIQ3_XXS, BlockIQ1_S,
                            BlockIQ4_NL, BlockIQ3_S, BlockIQ2_S, BlockIQ4_XS, BlockIQ1_M, BlockBF16,
                            BlockTQ1_0, BlockTQ2_0, BlockMXFP4, BlockNVFP4, BlockQ1_0, BlockQ2_0>;
static_assert(AllBlocks::kAllOfStatedSize);

/// Formats whose sub-blocks have integer scales.
template <typename Block>
concept HasSubBlocks = requires {
  Block::kSubBlock;
};

}  // namespace llm
