#ifndef LLM_QUANT_FORMATS_BLOCK_VISIT_H_
#define LLM_QUANT_FORMATS_BLOCK_VISIT_H_

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "quant/formats/block_formats.h"

namespace llm {

/// Calls `visitor.template operator()<Block>()` with the block struct of `type`, so that code
/// written once over Block becomes a run-time choice.
template <typename Visitor>
decltype(auto) visit_block_format(WeightType type, Visitor&& visitor) {
  switch (type) {
    case WeightType::kF32:
      return visitor.template operator()<BlockF32>();
    case WeightType::kF16:
      return visitor.template operator()<BlockF16>();
    case WeightType::kBF16:
      return visitor.template operator()<BlockBF16>();
    case WeightType::kQ4_0:
      return visitor.template operator()<BlockQ4_0>();
    case WeightType::kQ4_1:
      return visitor.template operator()<BlockQ4_1>();
    case WeightType::kQ5_0:
      return visitor.template operator()<BlockQ5_0>();
    case WeightType::kQ5_1:
      return visitor.template operator()<BlockQ5_1>();
    case WeightType::kQ8_0:
      return visitor.template operator()<BlockQ8_0>();
    case WeightType::kQ2_K:
      return visitor.template operator()<BlockQ2_K>();
    case WeightType::kQ3_K:
      return visitor.template operator()<BlockQ3_K>();
    case WeightType::kQ4_K:
      return visitor.template operator()<BlockQ4_K>();
    case WeightType::kQ5_K:
      return visitor.template operator()<BlockQ5_K>();
    case WeightType::kQ6_K:
      return visitor.template operator()<BlockQ6_K>();
    case WeightType::kQ8_K:
      return visitor.template operator()<BlockQ8_K>();
  }
  LLM_CHECK(false && "a weight type outside the enumeration");
  __builtin_unreachable();
}

/// Block `index` of bytes that may have any alignment.
/// @pre bytes holds at least index + 1 blocks
template <typename Block>
Block load_block(std::span<const std::byte> bytes, std::size_t index) {
  static_assert(std::is_trivially_copyable_v<Block>);
  Block block;
  std::memcpy(&block, bytes.data() + index * sizeof(Block), sizeof(Block));
  return block;
}

}  // namespace llm

#endif  // LLM_QUANT_FORMATS_BLOCK_VISIT_H_
