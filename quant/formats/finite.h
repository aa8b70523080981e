#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "quant/formats/block_traits.h"

namespace llm {

/// The index of the first block in `blocks` that has an infinite or NaN scale, offset or (for F32,
/// F16, BF16, where a block is one weight) value; nothing when all are finite. Then every weight is
/// finite too, but for products that overflow f32, which only the scales of Q8_K and MXFP4 allow.
/// @pre blocks.size() is a multiple of the type's block_bytes
/// Cost: reads the scales only; about memory speed for the float types.
std::optional<std::size_t> first_nonfinite_block(WeightType type,
                                                 std::span<const std::byte> blocks);

/// How large each block's weights may be, by what scales them: the largest of its scale, its offset
/// (of types with both) and, of F32, F16 and BF16, the value, without signs.
/// @pre blocks.size() == out.size() * the type's block_bytes
void block_magnitudes(WeightType type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace llm
