#pragma once

#include <cstddef>
#include <span>

#include "quant/formats/block_formats.h"

namespace llm {

/// Which build of the search runs. The bytes are equal; kAvx2 takes a quarter of the time or less.
enum class SearchUnit { kBaseline, kAvx2 };

/// The fastest this CPU has.
SearchUnit best_search_unit();

/// The types that affine_search.h and symmetric_search.h search.
template <typename Block>
inline constexpr bool kIsSearchedInLanes = [] {
  using enum WeightType;
  for (const WeightType type :
       {kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_XS, kIQ4_NL, kQ4_0, kQ4_1, kQ5_0, kQ5_1}) {
    if (type == Block::kType) return true;
  }
  return false;
}();

/// Quantizes 256 weights to the blocks of that type with the least sum of error_weights times
/// squared errors that the search finds.
/// @param error_weights  one for each weight, or none: all 1
/// @pre weights are below 10^9 in magnitude, error_weights in (0, 1]; kIsSearchedInLanes;
///      out.size() == row_bytes(type, 256); this CPU has what `unit` needs
void search_blocks(SearchUnit unit, WeightType type, std::span<const float> weights,
                   std::span<const float> error_weights, std::span<std::byte> out);

}  // namespace llm
