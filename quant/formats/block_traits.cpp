#include "quant/formats/block_traits.h"

#include <array>
#include <cctype>

#include "base/check.h"
#include "quant/formats/block_formats.h"

namespace llm {
namespace {

template <typename... Blocks>
constexpr auto traits_of(BlockList<Blocks...>) {
  return std::array{BlockTraits{Blocks::kType, Blocks::kName, Blocks::kWeights, sizeof(Blocks)}...};
}
constexpr auto kTraits = traits_of(AllBlocks{});

bool same_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::toupper(static_cast<unsigned char>(a[i])) !=
        std::toupper(static_cast<unsigned char>(b[i]))) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::span<const BlockTraits> all_block_traits() { return kTraits; }

const BlockTraits& block_traits(WeightType type) {
  for (const BlockTraits& traits : kTraits) {
    if (traits.type == type) return traits;
  }
  LLM_CHECK(false && "a weight type outside the enumeration");
  return kTraits[0];
}

std::optional<WeightType> weight_type_from_id(std::uint32_t id) {
  for (const BlockTraits& traits : kTraits) {
    if (static_cast<std::uint32_t>(traits.type) == id) return traits.type;
  }
  return std::nullopt;
}

std::optional<WeightType> weight_type_from_name(std::string_view name) {
  for (const BlockTraits& traits : kTraits) {
    if (same_ignoring_case(traits.name, name)) return traits.type;
  }
  return std::nullopt;
}

std::size_t row_bytes(WeightType type, std::size_t n_cols) {
  const BlockTraits& traits = block_traits(type);
  LLM_CHECK(n_cols % traits.block_weights == 0);
  return n_cols / traits.block_weights * traits.block_bytes;
}

}  // namespace llm
