#include "quant/formats/reference/dot.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "quant/formats/activations.h"
#include "quant/formats/block_visit.h"
#include "quant/formats/codes.h"
#include "quant/formats/dequantize.h"
#include "quant/formats/half.h"
#include "quant/formats/reference/by_fma.h"

namespace llm::reference {
namespace {

using contract::block_scale;
using contract::Codes;
using contract::dequantize_row;
using contract::scale_of_16;
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
float add_block(const Block& w, const Codes<Block>& codes, const Activation& x, float acc) {
  const std::int32_t isum = integer_dot(codes.data(), x.qs, Block::kWeights);
  acc = std::fma(static_cast<float>(isum), block_scale(w) * x.d, acc);
  if constexpr (requires { w.m; }) {
    const std::int32_t msum = x.sum;
    acc = std::fma(static_cast<float>(msum), f16_to_f32(w.m) * x.d, acc);
  }
  return acc;
}

template <HasSubBlocks Block>
float add_block(const Block& w, const Codes<Block>& codes, const BlockQ8_K& x, float acc) {
  constexpr std::size_t kSize = Block::kSubBlock;
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

/// Activations of one block of weights that has several blocks of them.
template <std::size_t kBlocks>
struct SeveralQ8_32 {
  static constexpr std::size_t kWeights = kBlocks * BlockQ8_32::kWeights;
  BlockQ8_32 part[kBlocks];
};

template <typename Block, std::size_t kBlocks>
float add_block(const Block& w, const Codes<Block>& codes, const SeveralQ8_32<kBlocks>& x,
                float acc) {
  const std::int8_t* q = codes.data();
  for (const BlockQ8_32& part : x.part) {
    const std::int32_t isum = integer_dot(q, part.qs, BlockQ8_32::kWeights);
    acc = std::fma(static_cast<float>(isum), block_scale(w) * part.d, acc);
    q += BlockQ8_32::kWeights;
  }
  return acc;
}

float add_block(const BlockNVFP4& w, const Codes<BlockNVFP4>& codes, const SeveralQ8_32<2>& x,
                float acc) {
  constexpr std::size_t kSize = BlockNVFP4::kScaled;
  for (std::size_t s = 0; s < BlockNVFP4::kWeights / kSize; ++s) {
    const BlockQ8_32& half = x.part[s / 2];
    const std::int32_t isum = integer_dot(codes.data() + s * kSize, half.qs + s % 2 * kSize, kSize);
    acc = std::fma(static_cast<float>(isum), scale_of_16(w, s) * half.d, acc);
  }
  return acc;
}

/// Weights that are numbers already.
struct NoCodes {};

float add_block(const BlockF32& w, NoCodes, const BlockF32& x, float acc) {
  return std::fma(w.value, x.value, acc);
}
float add_block(const BlockF16& w, NoCodes, const BlockF32& x, float acc) {
  return std::fma(f16_to_f32(w.bits), x.value, acc);
}
float add_block(const BlockBF16& w, NoCodes, const BlockF32& x, float acc) {
  return std::fma(bf16_to_f32(w.bits), x.value, acc);
}

/// The activation block that goes with a block of kWeights weights; see activation_format().
template <std::size_t kWeights>
using ActivationOf =
    std::conditional_t<kWeights == 1, BlockF32,
                       std::conditional_t<kWeights == 32, BlockQ8_32,
                                          std::conditional_t<kWeights == 256, BlockQ8_K,
                                                             SeveralQ8_32<kWeights / 32>>>>;

/// Sums of as many rows of x, side by side: none waits for another's additions.
constexpr std::size_t kChains = 4;

template <std::size_t kRows>
void run_chains(std::span<const float> w, std::span<const float> x, std::span<float> y) {
  by_fma([&]() LLM_BY_FMA {
    float acc[kRows] = {};
    for (std::size_t k = 0; k < w.size(); ++k)
      for (std::size_t t = 0; t < kRows; ++t) acc[t] = std::fma(w[k], x[t * w.size() + k], acc[t]);
    for (std::size_t t = 0; t < kRows; ++t) y[t] = acc[t];
  });
}

}  // namespace

void dot_row(WeightType type, std::span<const std::byte> row,
             std::span<const std::byte> activations, std::span<float> y) {
  visit_block_format(type, [&]<typename Block>() {
    using Activation = ActivationOf<Block::kWeights>;
    const std::size_t blocks = row.size() / sizeof(Block);
    LLM_CHECK(row.size() == blocks * sizeof(Block));
    LLM_CHECK(activations.size() == y.size() * blocks * sizeof(Activation));
    std::ranges::fill(y, 0.0F);
    for (std::size_t b = 0; b < blocks; ++b) {
      const auto w = load_block<Block>(row, b);
      const auto codes = [&] {
        if constexpr (Block::kWeights == 1) {
          return NoCodes();
        } else {
          return unpack_codes(w);
        }
      }();
      for (std::size_t t = 0; t < y.size(); ++t)
        y[t] = add_block(w, codes, load_block<Activation>(activations, t * blocks + b), y[t]);
    }
  });
}

float dot_row(WeightType type, std::span<const std::byte> row,
              std::span<const std::byte> activations) {
  float y = 0;
  dot_row(type, row, activations, {&y, 1});
  return y;
}

void dot_row_f32(WeightType type, std::span<const std::byte> row, std::span<const float> x,
                 std::span<float> y) {
  const std::size_t n = x.size() / y.size();
  std::vector<float> weights(n);
  dequantize_row(type, row, weights);
  std::size_t t = 0;
  for (; t + kChains <= y.size(); t += kChains)
    run_chains<kChains>(weights, x.subspan(t * n), y.subspan(t));
  for (; t < y.size(); ++t) run_chains<1>(weights, x.subspan(t * n), y.subspan(t));
}

float dot_row_f32(WeightType type, std::span<const std::byte> row, std::span<const float> x) {
  float y = 0;
  dot_row_f32(type, row, x, {&y, 1});
  return y;
}

}  // namespace llm::reference
