#include "quant/formats/quantize/quantize_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "quant/formats/block_visit.h"
#include "quant/formats/codes.h"
#include "quant/formats/half.h"
#include "quant/formats/quantize/codebook_search.h"
#include "quant/formats/quantize/float4.h"
#include "quant/formats/quantize/lane_search.h"
#include "quant/formats/quantize/legacy_blocks.h"
#include "quant/formats/quantize/ternary.h"

namespace llm {
namespace {

/// Weights that are quantized at once: whole blocks of every type.
constexpr std::size_t kChunk = 256;

/// Above every weight that searched types can hold (Q6_K: 65504 * 128 * 32), and so small that sums
/// of squares stay finite.
constexpr float kSearchLimit = 1e9f;

/// No weight of an error is below this share of the largest, so that columns without importance
/// keep their place where it costs the others nothing, and no sum of weights is 0.
constexpr float kLeastWeight = 0x1p-20F;

/// Whether every |x| <= limit; false for NaN.
bool all_within(std::span<const float> x, float limit) {
  unsigned beyond = 0;
  for (const float value : x) beyond |= std::abs(value) <= limit ? 0u : 1u;
  return beyond == 0;
}

/// What the squared errors of a chunk's weights count: importances, over the largest of these.
/// ggml's quantizers (ggml-quants.c, MIT) multiply them by sqrt(mean of x x + x x), which gives
/// larger divergences (docs/quantization.md).
void set_error_weights(std::span<const float> importance, float (&w)[kChunk]) {
  const float largest = *std::ranges::max_element(importance);
  for (std::size_t j = 0; j < kChunk; ++j) {
    const float own = j < importance.size() ? importance[j] : 0;
    w[j] = largest > 0 ? std::max(own / largest, kLeastWeight) : 1;
  }
}

/// Types whose errors count the more the larger the weight where there are no importances: that
/// gives smaller divergences (docs/quantization.md).
template <typename Block>
constexpr bool kWeighsBySize =
    Block::kType == WeightType::kIQ4_NL || Block::kType == WeightType::kIQ4_XS;

/// What the squared errors count without importances: mean of x x + x x, over the largest of these.
void set_size_weights(std::span<const float> x, float (&w)[kChunk]) {
  float sum = 0;
  float largest = 0;
  for (const float value : x) {
    sum += value * value;
    largest = std::max(largest, value * value);
  }
  const float mean = sum / static_cast<float>(x.size());
  const float unit = largest > 0 ? 1 / (mean + largest) : 0;
  for (std::size_t j = 0; j < kChunk; ++j)
    w[j] = unit > 0 ? std::max((mean + x[j] * x[j]) * unit, kLeastWeight) : 1;
}

template <typename Block>
constexpr bool kIsTernary =
    Block::kType == WeightType::kTQ1_0 || Block::kType == WeightType::kTQ2_0;
template <typename Block>
constexpr bool kIsFloat4 = Block::kType == WeightType::kMXFP4 || Block::kType == WeightType::kNVFP4;
/// Q8_0, Q1_0, Q2_0: their rules have no search.
template <typename Block>
constexpr bool kHasRule = Block::kType == WeightType::kQ8_0 || Block::kType == WeightType::kQ1_0 ||
                          Block::kType == WeightType::kQ2_0;
/// Q4_0, Q4_1, Q5_0 and Q5_1, which have a rule for weights that all count the same.
template <typename Block>
constexpr bool kHasPlainRule =
    kIsSearchedInLanes<Block>&& Block::kWeights == 32 && Block::kType != WeightType::kIQ4_NL;

/// The block that says "these weights cannot be stored": infinite scale, everything else zero.
template <typename Block>
Block unstorable() {
  Block block;
  std::memset(&block, 0, sizeof(block));
  if constexpr (Block::kType == WeightType::kMXFP4) {
    block.d = 0xFF;
  } else if constexpr (Block::kType == WeightType::kNVFP4) {
    std::fill_n(block.scales, 4, std::uint8_t{0x7F});
  } else if constexpr (Block::kType == WeightType::kIQ1_M) {
    contract::set_iq1_m_scale_bits(block, 0x7C00);
  } else {
    block.d = 0x7C00;
  }
  return block;
}

/// A chunk; `w` has weights of errors, or is null where all count the same.
template <typename Block>
void quantize_chunk(const float (&x)[kChunk], const float* w,
                    Block (&out)[kChunk / Block::kWeights]) {
  constexpr std::size_t kWeights = Block::kWeights;
  static const auto ones = [] {
    std::array<float, kChunk> values;
    values.fill(1);
    return values;
  }();
  const float* weights = w != nullptr ? w : ones.data();
  const bool plain = kHasPlainRule<Block> && w == nullptr;
  if constexpr (HasCodebook<Block>) {
    search_codebook(Block::kType, x, std::span<const float, kChunk>(weights, kChunk),
                    std::as_writable_bytes(std::span(out)));
  } else if constexpr (kIsSearchedInLanes<Block>) {
    if (!plain)
      search_blocks(best_search_unit(), Block::kType, x, {w, w != nullptr ? kChunk : 0},
                    std::as_writable_bytes(std::span(out)));
  }
  for (std::size_t b = 0; b < kChunk / kWeights; ++b) {
    const float* first = x + b * kWeights;
    if constexpr (kIsTernary<Block>) {
      float counts[kChunk];
      std::copy_n(weights, kChunk, counts);
      quantize_block(x, counts, out[b]);
    } else if constexpr (kIsFloat4<Block>) {
      quantize_block(first, weights + b * kWeights, out[b]);
    } else if constexpr (kHasRule<Block> || kHasPlainRule<Block>) {
      float block[kWeights];
      std::copy_n(first, kWeights, block);
      if (kHasRule<Block> || plain) quantize_block(block, out[b]);
    }
  }
}

template <typename Block>
void quantize_blocks(std::span<const float> row, std::span<const float> importance,
                     std::span<std::byte> out) {
  constexpr std::size_t kWeights = Block::kWeights;
  // Rules and floats of four bits hold all finite weights, or say so themselves.
  const bool is_ruled =
      kHasRule<Block> || kIsFloat4<Block> || (kHasPlainRule<Block> && importance.empty());
  const float limit = is_ruled ? std::numeric_limits<float>::max() : kSearchLimit;
  for (std::size_t first = 0; first < row.size(); first += kChunk) {
    const auto part = row.subspan(first, std::min(kChunk, row.size() - first));
    float x[kChunk] = {};
    for (std::size_t j = 0; j < part.size(); j += kWeights)
      if (all_within(part.subspan(j, kWeights), limit)) std::copy_n(&part[j], kWeights, x + j);
    float w[kChunk];
    if (!importance.empty()) set_error_weights(importance.subspan(first, part.size()), w);
    const bool by_size = kWeighsBySize<Block> && importance.empty();
    if (by_size) set_size_weights(x, w);
    Block blocks[kChunk / kWeights];
    quantize_chunk(x, importance.empty() && !by_size ? nullptr : w, blocks);
    for (std::size_t b = 0; b < part.size() / kWeights; ++b)
      if (!all_within(part.subspan(b * kWeights, kWeights), limit)) blocks[b] = unstorable<Block>();
    std::memcpy(out.data() + first / kWeights * sizeof(Block), blocks,
                part.size() / kWeights * sizeof(Block));
  }
}

void store(float x, BlockF32& out) { out = {{}, x}; }
void store(float x, BlockF16& out) { out = {{}, f32_to_f16(x)}; }
void store(float x, BlockBF16& out) { out = {{}, f32_to_bf16(x)}; }

}  // namespace

bool is_quantization_target(WeightType type) { return type != WeightType::kQ8_K; }

void quantize_row(WeightType type, std::span<const float> row, std::span<std::byte> out,
                  std::span<const float> importance) {
  LLM_CHECK(is_quantization_target(type));
  LLM_CHECK(out.size() == row_bytes(type, row.size()));
  LLM_CHECK(importance.empty() || importance.size() == row.size());
  visit_block_format(type, [&]<typename Block>() {
    if constexpr (Block::kWeights == 1) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        Block block;
        store(row[i], block);
        std::memcpy(out.data() + i * sizeof(Block), &block, sizeof(Block));
      }
    } else if constexpr (Block::kType != WeightType::kQ8_K) {
      quantize_blocks<Block>(row, importance, out);
    }
  });
}

}  // namespace llm
