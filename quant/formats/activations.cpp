#include "quant/formats/activations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace llm {
namespace {

constexpr auto kMaxCode = static_cast<float>(contract::kMaxActivationCode);

/// The largest magnitude by bit pattern: NaN is above Inf, Inf above every number.
float largest_magnitude(std::span<const float> x) {
  std::uint32_t largest = 0;
  for (const float value : x) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7FFF'FFFFu);
  }
  return std::bit_cast<float>(largest);
}

/// The integer nearest to v, ties to even. @pre |v| < 2^22
/// 1.5 * 2^23 has a unit in the last place of 1, so the addition rounds v to an integer, which is
/// then the difference of the bit patterns.
std::int32_t round_half_even(float v) {
  constexpr float kShift = 12582912.0f;
  return std::bit_cast<std::int32_t>(v + kShift) - std::bit_cast<std::int32_t>(kShift);
}

std::int16_t sum_of(const std::int8_t* qs, std::size_t n) {
  int sum = 0;
  for (std::size_t j = 0; j < n; ++j) sum += qs[j];
  return static_cast<std::int16_t>(sum);
}

}  // namespace

ActivationFormat activation_format(WeightType type) {
  const std::size_t weights = block_traits(type).block_weights;
  if (weights == 1) return ActivationFormat::kF32;
  return weights < contract::kSuperBlock ? ActivationFormat::kQ8_32 : ActivationFormat::kQ8_K;
}

std::size_t activation_block_size(ActivationFormat format) {
  return visit_activation_block(format, []<typename Block>() { return Block::kWeights; });
}

std::size_t activation_row_bytes(ActivationFormat format, std::size_t n) {
  LLM_CHECK(n % activation_block_size(format) == 0);
  return visit_activation_block(
      format, [&]<typename Block>() { return n / Block::kWeights * sizeof(Block); });
}

float quantize_codes(std::span<const float> x, std::int8_t* qs) {
  const float amax = largest_magnitude(x);
  const float scale = kMaxCode / amax;
  const float d = amax / kMaxCode;
  if (!std::isfinite(d) || !std::isfinite(scale)) {
    std::fill_n(qs, x.size(), std::int8_t{0});
    return std::isfinite(d) ? 0.0f : d;
  }
  for (std::size_t j = 0; j < x.size(); ++j) {
    qs[j] = static_cast<std::int8_t>(round_half_even(x[j] * scale));
  }
  return d;
}

void quantize_block(std::span<const float, 256> x, BlockQ8_K& out) {
  out.d = quantize_codes(x, out.qs);
  for (std::size_t s = 0; s < 16; ++s) out.bsums[s] = sum_of(out.qs + 16 * s, 16);
}

void quantize_block(std::span<const float, 32> x, BlockQ8_32& out) {
  out.d = quantize_codes(x, out.qs);
  out.sum = sum_of(out.qs, 32);
  out.zero = 0;
}

void quantize_activations(ActivationFormat format, std::span<const float> x,
                          std::span<std::byte> out) {
  LLM_CHECK(out.size() == activation_row_bytes(format, x.size()));
  visit_activation_block(format, [&]<typename Block>() {
    for (std::size_t b = 0; b < x.size() / Block::kWeights; ++b) {
      Block block;
      quantize_block(x.subspan(b * Block::kWeights).template first<Block::kWeights>(), block);
      std::memcpy(out.data() + b * sizeof(Block), &block, sizeof(Block));
    }
  });
}

}  // namespace llm
