#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/check.h"
#include "quant/formats/block_formats.h"

namespace llm {

namespace detail {
template <typename Visitor, typename Block, typename... Rest>
decltype(auto) visit(WeightType type, Visitor& visitor, BlockList<Block, Rest...>) {
  if constexpr (sizeof...(Rest) > 0) {
    if (type != Block::kType) return visit(type, visitor, BlockList<Rest...>{});
  }
  LLM_CHECK(type == Block::kType);
  return visitor.template operator()<Block>();
}
}  // namespace detail

/// Calls `visitor.template operator()<Block>()` with the block struct of `type`, so that code
/// written once over Block becomes a run-time choice.
template <typename Visitor>
decltype(auto) visit_block_format(WeightType type, Visitor&& visitor) {
  return detail::visit(type, visitor, AllBlocks{});
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
