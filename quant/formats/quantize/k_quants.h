#pragma once

#include <cstddef>
#include <span>

#include "quant/formats/block_traits.h"

namespace llm {

/// Which build of the search runs. The bytes are equal; kAvx2 takes a quarter of the time or less.
enum class SearchUnit { kBaseline, kAvx2 };

/// The fastest this CPU has.
SearchUnit best_search_unit();

/// Quantizes whole super-blocks to Q2_K, Q3_K, Q4_K, Q5_K, Q6_K or IQ4_XS by the search of
/// affine_search.h and symmetric_search.h.
/// @pre weights are finite and below 10^9 in magnitude; out.size() == row_bytes(type,
/// weights.size());
///      this CPU has what `unit` needs
void quantize_k_blocks(SearchUnit unit, WeightType type, std::span<const float> weights,
                       std::span<std::byte> out);

}  // namespace llm
