#include "quant/formats/dequantize.h"

#include <concepts>

#include "base/check.h"
#include "quant/formats/block_visit.h"
#include "quant/formats/codes.h"
#include "quant/formats/half.h"

namespace llm::contract {
namespace {

template <typename Block, typename... Candidates>
concept OneOf = (std::same_as<Block, Candidates> || ...);

void dequantize(const BlockF32& block, float* out) { *out = block.value; }
void dequantize(const BlockF16& block, float* out) { *out = f16_to_f32(block.bits); }
void dequantize(const BlockBF16& block, float* out) { *out = bf16_to_f32(block.bits); }

template <OneOf<BlockQ4_0, BlockQ5_0, BlockQ8_0> Block>
void dequantize(const Block& block, float* out) {
  const Codes<Block> codes = unpack_codes(block);
  const float d = f16_to_f32(block.d);
  for (std::size_t j = 0; j < codes.size(); ++j) out[j] = d * static_cast<float>(codes[j]);
}

template <OneOf<BlockQ4_1, BlockQ5_1> Block>
void dequantize(const Block& block, float* out) {
  const Codes<Block> codes = unpack_codes(block);
  const float d = f16_to_f32(block.d);
  const float m = f16_to_f32(block.m);
  for (std::size_t j = 0; j < codes.size(); ++j) out[j] = d * static_cast<float>(codes[j]) + m;
}

template <OneOf<BlockQ3_K, BlockQ6_K> Block>
void dequantize(const Block& block, float* out) {
  const Codes<Block> codes = unpack_codes(block);
  const float d = f16_to_f32(block.d);
  for (std::size_t j = 0; j < codes.size(); ++j) {
    const SubScale sub = sub_scale(block, j / kSubBlock<Block>);
    out[j] = d * static_cast<float>(sub.scale) * static_cast<float>(codes[j]);
  }
}

template <OneOf<BlockQ2_K, BlockQ4_K, BlockQ5_K> Block>
void dequantize(const Block& block, float* out) {
  const Codes<Block> codes = unpack_codes(block);
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  for (std::size_t j = 0; j < codes.size(); ++j) {
    const SubScale sub = sub_scale(block, j / kSubBlock<Block>);
    out[j] = d * static_cast<float>(sub.scale) * static_cast<float>(codes[j]) -
             dmin * static_cast<float>(sub.min);
  }
}

void dequantize(const BlockQ8_K& block, float* out) {
  for (std::size_t j = 0; j < 256; ++j) out[j] = block.d * static_cast<float>(block.qs[j]);
}

}  // namespace

void dequantize_row(WeightType type, std::span<const std::byte> row, std::span<float> out) {
  LLM_CHECK(row.size() == row_bytes(type, out.size()));
  visit_block_format(type, [&]<typename Block>() {
    for (std::size_t b = 0; b < out.size() / Block::kWeights; ++b) {
      dequantize(load_block<Block>(row, b), out.data() + b * Block::kWeights);
    }
  });
}

}  // namespace llm::contract
