#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/formats/block_formats.h"
#include "quant/kernels/packed_layout.h"

/// Blocks that kernels do not take apart themselves: 16 rows of one are turned into a block of a
/// simpler format, once for all tokens, outside of the units of the instruction sets. One product
/// serves all these types.

namespace llm {

/// 256 codes with a scale for each 16, to which every type of 256 weights with a codebook or of
/// three values is expanded. It is in no file.
///
///   weight[j] = (d * scales[j / 16]) * qs[j]
struct BlockExpanded {
  static constexpr std::size_t kWeights = 256;
  static constexpr std::size_t kSubBlock = 16;
  float d;
  std::int8_t scales[16];
  std::int8_t qs[256];
};

template <>
struct PackedLayout<BlockExpanded> {
  using B = BlockExpanded;
  static constexpr std::array kFields = {packed_words(offsetof(B, d), 1),
                                         packed_bytes(offsetof(B, scales), 16),
                                         packed_words(offsetof(B, qs), 64)};
};
static_assert(covers_block<BlockExpanded>());

/// A block of NVFP4 as kernels take it: for each 16 weights a Q8_0, whose other 16 codes are 0,
/// before or after those of the 16. Every scale is an f16, and no product changes.
inline constexpr std::size_t kNvfp4Blocks = BlockNVFP4::kWeights / BlockNVFP4::kScaled;

/// Whether kernels take `Block` only in another form.
template <class Block>
constexpr bool kIsExpanded =
    HasCodebook<Block> || Block::kType == WeightType::kTQ1_0 ||
    Block::kType == WeightType::kTQ2_0 || Block::kType == WeightType::kNVFP4;

/// Expands a packed block of 16 rows.
/// @pre kIsExpanded of the type's block
/// @param expanded  64-byte aligned: 16 rows of BlockExpanded, packed; of NVFP4 kNvfp4Blocks blocks
///                  of 16 rows of BlockQ8_0, one after the other
/// Cost: a few operations for a weight.
void expand_block(WeightType type, const std::byte* packed, std::byte* expanded);

/// The weights of a packed block of 16 rows, bit for bit what contract::dequantize_row() gives, but
/// by way of expand_block(): out[16 j + r] is weight j of row r. @pre as of expand_block()
void expand_to_f32(WeightType type, const std::byte* packed, float* out);

}  // namespace llm
