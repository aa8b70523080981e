// Blocks that are expanded before products, with faults.

#include "quant/kernels/expand.h"

#include <cstring>

#include "quant/numerics/contract.h"
#include "tests/fault_injection/fault.h"

namespace llm::faults {
namespace {

constexpr std::size_t kPanelRows = contract::kPanelRows;

/// Makes row 3 of an expanded block wrong.
void spoil_expanded(const Fault& fault, std::byte* block) {
  constexpr std::size_t kRow = 3;
  constexpr std::size_t kScales =
      packed_position<BlockExpanded>(packed_bytes(offsetof(BlockExpanded, scales), 16));
  constexpr std::size_t kCodes =
      packed_position<BlockExpanded>(packed_words(offsetof(BlockExpanded, qs), 64));
  auto* bytes = reinterpret_cast<std::int8_t*>(block);
  std::int8_t& scale = bytes[kPanelRows * (kScales + 5) + kRow];
  if (fault.is("sub_scale")) scale = static_cast<std::int8_t>(scale + 2);
  if (!fault.is("last_sign")) return;
  for (std::size_t j = 7; j < BlockExpanded::kWeights; j += 8) {
    std::int8_t& code = bytes[kPanelRows * (kCodes + j / 4 * 4) + 4 * kRow + j % 4];
    code = static_cast<std::int8_t>(-code);
  }
}

}  // namespace

LLM_WRAP(expand_block, "_ZN3llm12expand_blockENS_10WeightTypeEPKSt4bytePS1_", void, WeightType type,
         const std::byte* packed, std::byte* expanded) {
  real_expand_block(type, packed, expanded);
  const auto fault = planted("expand", {{"type", block_traits(type).name}});
  if (!fault) return;
  note_struck();
  if (type != WeightType::kNVFP4) return spoil_expanded(*fault, expanded);
  // Q8_0: the scale of row 3 in the second block becomes that of the first.
  constexpr std::size_t kBlock = kPanelRows * sizeof(BlockQ8_0);
  if (fault->is("block_scale")) std::memcpy(expanded + kBlock + 6, expanded + 6, 2);
}

}  // namespace llm::faults
