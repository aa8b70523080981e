#include "quant/formats/dequantize.h"

#include "base/check.h"
#include "quant/formats/block_visit.h"
#include "quant/formats/codes.h"
#include "quant/formats/half.h"

namespace llm::contract {
namespace {

void dequantize(const BlockF32& block, float* out) { *out = block.value; }
void dequantize(const BlockF16& block, float* out) { *out = f16_to_f32(block.bits); }
void dequantize(const BlockBF16& block, float* out) { *out = bf16_to_f32(block.bits); }

template <typename Block>
void dequantize(const Block& block, float* out) {
  const Codes<Block> codes = unpack_codes(block);
  const float d = block_scale(block);
  for (std::size_t j = 0; j < codes.size(); ++j) {
    out[j] = d * static_cast<float>(codes[j]);
    if constexpr (requires { block.m; }) out[j] += f16_to_f32(block.m);
  }
}

template <HasSubBlocks Block>
void dequantize(const Block& block, float* out) {
  const Codes<Block> codes = unpack_codes(block);
  const float d = block_scale(block);
  for (std::size_t j = 0; j < codes.size(); ++j) {
    const SubScale sub = sub_scale(block, j / Block::kSubBlock);
    out[j] = d * static_cast<float>(sub.scale) * static_cast<float>(codes[j]);
    if constexpr (requires { block.dmin; }) {
      out[j] -= f16_to_f32(block.dmin) * static_cast<float>(sub.min);
    }
  }
}

void dequantize(const BlockNVFP4& block, float* out) {
  const Codes<BlockNVFP4> codes = unpack_codes(block);
  for (std::size_t j = 0; j < codes.size(); ++j)
    out[j] = scale_of_16(block, j / BlockNVFP4::kScaled) * static_cast<float>(codes[j]);
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
