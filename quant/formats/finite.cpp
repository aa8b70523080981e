#include "quant/formats/finite.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "quant/formats/block_visit.h"
#include "quant/formats/codes.h"
#include "quant/formats/half.h"

namespace llm {
namespace {

bool is_finite_scale(float scale) { return std::isfinite(scale); }
bool is_finite_scale(std::uint16_t f16) { return (f16 & 0x7C00) != 0x7C00; }
bool is_finite_scale(std::uint8_t e8m0) { return e8m0 != 0xFF; }

bool is_finite(const BlockF32& block) { return std::isfinite(block.value); }
bool is_finite(const BlockF16& block) { return is_finite_scale(block.bits); }
bool is_finite(const BlockBF16& block) { return (block.bits & 0x7F80) != 0x7F80; }

template <typename Block>
bool is_finite(const Block& block) {
  bool finite = is_finite_scale(block.d);
  if constexpr (requires { block.m; }) finite = finite && is_finite_scale(block.m);
  if constexpr (requires { block.dmin; }) finite = finite && is_finite_scale(block.dmin);
  return finite;
}

bool is_finite(const BlockIQ1_M& block) {
  return is_finite_scale(contract::iq1_m_scale_bits(block));
}
bool is_finite(const BlockNVFP4& block) {
  return std::ranges::all_of(block.scales, [](std::uint8_t scale) { return scale < 0x7F; });
}

float magnitude(const BlockF32& block) { return std::fabs(block.value); }
float magnitude(const BlockF16& block) { return std::fabs(f16_to_f32(block.bits)); }
float magnitude(const BlockBF16& block) { return std::fabs(bf16_to_f32(block.bits)); }
float magnitude(const BlockIQ1_M& block) {
  return std::fabs(f16_to_f32(contract::iq1_m_scale_bits(block)));
}
float magnitude(const BlockNVFP4& block) {
  return ue4m3_half_to_f32(*std::ranges::max_element(block.scales));
}

template <typename Block>
float magnitude(const Block& block) {
  const auto of = [](auto scale) { return std::fabs(contract::scale_value(scale)); };
  float largest = of(block.d);
  if constexpr (requires { block.m; }) largest = std::max(largest, of(block.m));
  if constexpr (requires { block.dmin; }) largest = std::max(largest, of(block.dmin));
  return largest;
}

}  // namespace

void block_magnitudes(WeightType type, std::span<const std::byte> blocks, std::span<float> out) {
  LLM_CHECK(blocks.size() == out.size() * block_traits(type).block_bytes);
  visit_block_format(type, [&]<typename Block>() {
    for (std::size_t b = 0; b < out.size(); ++b) out[b] = magnitude(load_block<Block>(blocks, b));
  });
}

std::optional<std::size_t> first_nonfinite_block(WeightType type,
                                                 std::span<const std::byte> blocks) {
  LLM_CHECK(blocks.size() % block_traits(type).block_bytes == 0);
  return visit_block_format(type, [&]<typename Block>() -> std::optional<std::size_t> {
    const std::size_t n_blocks = blocks.size() / sizeof(Block);
    // Whole groups without an early exit, which the compiler can vectorize; the block is looked for
    // only in a group that has one.
    constexpr std::size_t kGroup = 1024;
    for (std::size_t begin = 0; begin < n_blocks; begin += kGroup) {
      const std::size_t end = std::min(begin + kGroup, n_blocks);
      unsigned bad = 0;
      for (std::size_t b = begin; b < end; ++b) {
        bad |= is_finite(load_block<Block>(blocks, b)) ? 0u : 1u;
      }
      if (bad == 0) continue;
      for (std::size_t b = begin; b < end; ++b) {
        if (!is_finite(load_block<Block>(blocks, b))) return b;
      }
    }
    return std::nullopt;
  });
}

}  // namespace llm
