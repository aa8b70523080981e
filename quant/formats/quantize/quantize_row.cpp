#include "quant/formats/quantize/quantize_row.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "quant/formats/block_visit.h"
#include "quant/formats/half.h"
#include "quant/formats/quantize/iq4_nl.h"
#include "quant/formats/quantize/k_quants.h"
#include "quant/formats/quantize/legacy_blocks.h"
#include "quant/formats/quantize/mxfp4.h"

namespace llm {
namespace {

/// Above every weight a K-quant can hold (Q6_K: 65504 * 128 * 32), and so small that sums of
/// squares stay finite.
constexpr float kKQuantLimit = 1e9f;

/// Whether every |x| <= limit; false for NaN.
bool all_within(std::span<const float> x, float limit) {
  unsigned beyond = 0;
  for (const float value : x) beyond |= std::abs(value) <= limit ? 0u : 1u;
  return beyond == 0;
}

/// No search of ours finds codes of the others.
template <typename Block>
constexpr bool kIsTarget = !HasCodebook<Block> && Block::kType != WeightType::kTQ1_0 &&
                           Block::kType != WeightType::kTQ2_0 &&
                           Block::kType != WeightType::kNVFP4 && Block::kType != WeightType::kQ8_K;

void make_infinite(std::uint16_t& f16) { f16 = 0x7C00; }
void make_infinite(std::uint8_t& e8m0) { e8m0 = 0xFF; }

/// The block that says "these weights cannot be stored": infinite scale, everything else zero.
template <typename Block>
Block unstorable() {
  Block block;
  std::memset(&block, 0, sizeof(block));
  make_infinite(block.d);
  return block;
}

template <typename Block>
Block quantized_block(std::span<const float> x) {
  Block block;
  if constexpr (Block::kWeights == 256) {
    if (!all_within(x, kKQuantLimit)) return unstorable<Block>();
    std::byte bytes[sizeof(Block)];
    quantize_k_blocks(best_search_unit(), Block::kType, x, bytes);
    std::memcpy(&block, bytes, sizeof(Block));
  } else {
    if (!all_within(x, std::numeric_limits<float>::max())) return unstorable<Block>();
    float weights[Block::kWeights];
    std::memcpy(weights, x.data(), sizeof(weights));
    quantize_block(weights, block);
  }
  return block;
}

template <>
BlockF16 quantized_block(std::span<const float> x) {
  return {{}, f32_to_f16(x[0])};
}
template <>
BlockBF16 quantized_block(std::span<const float> x) {
  return {{}, f32_to_bf16(x[0])};
}
template <>
BlockF32 quantized_block(std::span<const float> x) {
  return {{}, x[0]};
}

}  // namespace

bool is_quantization_target(WeightType type) {
  return visit_block_format(type, []<typename Block>() { return kIsTarget<Block>; });
}

void quantize_row(WeightType type, std::span<const float> row, std::span<std::byte> out) {
  LLM_CHECK(is_quantization_target(type));
  LLM_CHECK(out.size() == row_bytes(type, row.size()));
  visit_block_format(type, [&]<typename Block>() {
    if constexpr (kIsTarget<Block>) {
      for (std::size_t b = 0; b < row.size() / Block::kWeights; ++b) {
        const auto block =
            quantized_block<Block>(row.subspan(b * Block::kWeights, Block::kWeights));
        std::memcpy(out.data() + b * sizeof(Block), &block, sizeof(Block));
      }
    }
  });
}

}  // namespace llm
