#include "quant/formats/reference/dot.h"

#include <cmath>
#include <vector>

#include "base/check.h"
#include "quant/formats/activations.h"
#include "quant/formats/block_visit.h"
#include "quant/formats/codes.h"
#include "quant/formats/dequantize.h"
#include "quant/formats/half.h"

namespace llm::reference {
namespace {

using contract::block_scale;
using contract::Codes;
using contract::dequantize_row;
using contract::sub_scale;
using contract::SubScale;
using contract::unpack_codes;

/// Sum of q * x over n elements, exact.
std::int32_t integer_dot(const std::int8_t* q, const std::int8_t* x, std::size_t n) {
  std::int32_t sum = 0;
  for (std::size_t j = 0; j < n; ++j) sum += q[j] * x[j];
  return sum;
}

template <typename Block, typename Activation>
float add_block(const Block& w, const Activation& x, float acc) {
  const Codes<Block> codes = unpack_codes(w);
  const std::int32_t isum = integer_dot(codes.data(), x.qs, Block::kWeights);
  acc = std::fma(static_cast<float>(isum), block_scale(w) * x.d, acc);
  if constexpr (requires { w.m; }) {
    const std::int32_t msum = x.sum;
    acc = std::fma(static_cast<float>(msum), f16_to_f32(w.m) * x.d, acc);
  }
  return acc;
}

template <HasSubBlocks Block>
float add_block(const Block& w, const BlockQ8_K& x, float acc) {
  constexpr std::size_t kSize = Block::kSubBlock;
  const Codes<Block> codes = unpack_codes(w);
  std::int32_t isum = 0;
  std::int32_t msum = 0;
  for (std::size_t s = 0; s < Block::kWeights / kSize; ++s) {
    const SubScale sub = sub_scale(w, s);
    isum += sub.scale * integer_dot(codes.data() + s * kSize, x.qs + s * kSize, kSize);
    for (std::size_t i = 0; i < kSize / 16; ++i) msum += sub.min * x.bsums[s * (kSize / 16) + i];
  }
  acc = std::fma(static_cast<float>(isum), block_scale(w) * x.d, acc);
  if constexpr (requires { w.dmin; }) {
    acc = std::fma(static_cast<float>(msum), -(f16_to_f32(w.dmin) * x.d), acc);
  }
  return acc;
}

float add_block(const BlockF32& w, const BlockF32& x, float acc) {
  return std::fma(w.value, x.value, acc);
}
float add_block(const BlockF16& w, const BlockF32& x, float acc) {
  return std::fma(f16_to_f32(w.bits), x.value, acc);
}
float add_block(const BlockBF16& w, const BlockF32& x, float acc) {
  return std::fma(bf16_to_f32(w.bits), x.value, acc);
}

/// The activation block that goes with a block of kWeights weights; see activation_format().
template <std::size_t kWeights>
struct ActivationOf;
template <>
struct ActivationOf<1> {
  using Type = BlockF32;
};
template <>
struct ActivationOf<32> {
  using Type = BlockQ8_32;
};
template <>
struct ActivationOf<256> {
  using Type = BlockQ8_K;
};

}  // namespace

float dot_row(WeightType type, std::span<const std::byte> row,
              std::span<const std::byte> activations) {
  return visit_block_format(type, [&]<typename Block>() {
    using Activation = typename ActivationOf<Block::kWeights>::Type;
    const std::size_t blocks = row.size() / sizeof(Block);
    LLM_CHECK(row.size() == blocks * sizeof(Block));
    LLM_CHECK(activations.size() == blocks * sizeof(Activation));
    float acc = 0.0f;
    for (std::size_t b = 0; b < blocks; ++b) {
      acc = add_block(load_block<Block>(row, b), load_block<Activation>(activations, b), acc);
    }
    return acc;
  });
}

float dot_row_f32(WeightType type, std::span<const std::byte> row, std::span<const float> x) {
  std::vector<float> weights(x.size());
  dequantize_row(type, row, weights);
  float acc = 0.0f;
  for (std::size_t k = 0; k < x.size(); ++k) acc = std::fma(weights[k], x[k], acc);
  return acc;
}

}  // namespace llm::reference
