#include "quant/formats/block_traits.h"

#include <array>
#include <cctype>

#include "base/check.h"

namespace llm {
namespace {

constexpr std::array kTraits = {
    BlockTraits{WeightType::kF32, "F32", 1, 4},
    BlockTraits{WeightType::kF16, "F16", 1, 2},
    BlockTraits{WeightType::kQ4_0, "Q4_0", 32, 18},
    BlockTraits{WeightType::kQ4_1, "Q4_1", 32, 20},
    BlockTraits{WeightType::kQ5_0, "Q5_0", 32, 22},
    BlockTraits{WeightType::kQ5_1, "Q5_1", 32, 24},
    BlockTraits{WeightType::kQ8_0, "Q8_0", 32, 34},
    BlockTraits{WeightType::kQ2_K, "Q2_K", 256, 84},
    BlockTraits{WeightType::kQ3_K, "Q3_K", 256, 110},
    BlockTraits{WeightType::kQ4_K, "Q4_K", 256, 144},
    BlockTraits{WeightType::kQ5_K, "Q5_K", 256, 176},
    BlockTraits{WeightType::kQ6_K, "Q6_K", 256, 210},
    BlockTraits{WeightType::kQ8_K, "Q8_K", 256, 292},
    BlockTraits{WeightType::kBF16, "BF16", 1, 2},
};

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
