#include "validate/self/kernel_blocks.h"

#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <span>

#include "quant/formats/block_visit.h"
#include "quant/formats/codes.h"
#include "quant/formats/half.h"

namespace llm {
namespace {

/// The largest and smallest f16 of both signs, and 1.
constexpr float kExtremeScales[] = {65504.0F, -65504.0F, 0x1p-24F, -0x1p-24F, 1.0F};
/// The least biased exponents of an E8M0, whose halves are denormal or just not; 1; and so large a
/// one that no sum overflows.
constexpr std::uint8_t kExtremeExponents[] = {0, 1, 2, 128, 200};
/// UE4M3: 0, the least, the greatest without exponent, the least with one, the greatest.
constexpr std::uint8_t kExtremeUnsigned[] = {0, 1, 7, 8, 0x7E};

/// Blocks of random weights, all finite.
class BlockSource {
 public:
  BlockSource(Codes codes, std::uint32_t seed) : codes_(codes), random_(seed) {}

  template <typename Block>
  Block next() {
    Block block;
    for (std::byte& byte : std::as_writable_bytes(std::span(&block, 1))) byte = next_byte();
    if constexpr (requires { block.value; }) block.value = 16 * scale();
    if constexpr (requires { block.bits; }) {
      block.bits = Block::kType == WeightType::kBF16 ? f32_to_bf16(scale()) : f32_to_f16(scale());
    }
    if constexpr (requires { block.d; }) set(block.d);
    if constexpr (requires { block.m; }) set(block.m);
    if constexpr (requires { block.dmin; }) set(block.dmin);
    if constexpr (Block::kType == WeightType::kIQ1_M)
      contract::set_iq1_m_scale_bits(block, f32_to_f16(scale()));
    if constexpr (Block::kType == WeightType::kNVFP4)
      for (std::uint8_t& scale : block.scales) scale = unsigned_scale();
    return block;
  }

 private:
  std::byte next_byte() {
    if (codes_ == Codes::kAllOnes) return std::byte{0xFF};
    if (codes_ == Codes::kMinimal) return std::byte{0x80};
    return static_cast<std::byte>(random_() & 0xFF);
  }
  float scale() {
    const auto bits = static_cast<std::uint32_t>(random_());
    if (codes_ != Codes::kRandom) return kExtremeScales[bits % std::size(kExtremeScales)];
    return static_cast<float>(bits >> 8) * 0x1p-28F - 0x1p-5F;
  }
  std::uint8_t unsigned_scale() {
    const auto bits = static_cast<std::uint32_t>(random_());
    return codes_ == Codes::kRandom ? static_cast<std::uint8_t>(bits % 32)
                                    : kExtremeUnsigned[bits % std::size(kExtremeUnsigned)];
  }
  void set(float& field) { field = scale(); }
  void set(std::uint16_t& field) { field = f32_to_f16(scale()); }
  void set(std::uint8_t& field) {
    const auto bits = static_cast<std::uint32_t>(random_());
    field = codes_ == Codes::kRandom ? static_cast<std::uint8_t>(116 + bits % 6)
                                     : kExtremeExponents[bits % std::size(kExtremeExponents)];
  }

  Codes codes_;
  std::mt19937 random_;
};

}  // namespace

std::vector<std::byte> draw_matrix(WeightType type, std::size_t n_rows, std::size_t n_cols,
                                   Codes codes) {
  std::vector<std::byte> bytes(n_rows * row_bytes(type, n_cols));
  visit_block_format(type, [&]<typename Block>() {
    BlockSource source(codes, static_cast<std::uint32_t>(n_rows + n_cols));
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(Block)) {
      const Block block = source.next<Block>();
      std::memcpy(bytes.data() + at, &block, sizeof(Block));
    }
  });
  return bytes;
}

}  // namespace llm
