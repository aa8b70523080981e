#pragma once

#include <cstddef>
#include <vector>

#include "quant/formats/block_traits.h"

namespace llm {

/// The bytes of codes and integer scales.
enum class Codes {
  kRandom,   ///< all of them drawn; f16 and f32 scales as of weights
  kAllOnes,  ///< every bit set; extreme f16 scales
  kMinimal,  ///< every byte 0x80, which is -128 as a signed code; extreme f16 scales
};

/// A matrix as it lies in a file: seeded random blocks, all weights finite.
std::vector<std::byte> draw_matrix(WeightType type, std::size_t n_rows, std::size_t n_cols,
                                   Codes codes);

}  // namespace llm
