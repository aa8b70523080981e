#include "validate/selftest/kernel_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <span>

#include "quant/formats/block_visit.h"
#include "quant/formats/codes.h"
#include "quant/formats/half.h"

namespace llm {
namespace {

/// Seeded draws that are the same with every standard library.
class Source {
 public:
  explicit Source(std::uint32_t seed) : random_(seed) {}

  std::uint32_t below(std::uint32_t n) {
    return static_cast<std::uint32_t>(std::uint64_t{bits()} * n >> 32);
  }
  /// Uniform in [-1, 1).
  float unit() { return static_cast<float>(bits() >> 8) * 0x1p-23F - 1.0F; }
  float sign() { return below(2) == 0 ? 1.0F : -1.0F; }
  /// A magnitude in [2^exponent, 2^(exponent + 1)) of either sign, rounded where it is denormal.
  float at_power(int exponent) {
    return std::ldexp(sign() * (1.0F + static_cast<float>(bits() >> 9) * 0x1p-23F), exponent);
  }

 private:
  std::uint32_t bits() { return static_cast<std::uint32_t>(random_()); }

  std::mt19937 random_;
};

float draw_gate(Source& source) {
  // Where exp reaches infinity, the least normal and the least denormal number, and 0; the bounds
  // it is computed between.
  constexpr float kEdges[] = {88.722839F, 87.336548F, 103.27893F, 103.97208F, 89.0F, 104.0F, 30.0F};
  if (source.below(2) == 0) return 200.0F * source.unit();
  const float edge = kEdges[source.below(std::size(kEdges))];
  return source.sign() * edge * (1.0F + 1e-3F * source.unit());
}

float draw_special(Source& source) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kSpecials[] = {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity};
  return kSpecials[source.below(std::size(kSpecials))];
}

float draw_one(Values values, Source& source, int run_power) {
  switch (values) {
    case Values::kPlain:
      break;
    case Values::kOutliers:
      return source.unit() * (source.below(64) == 0 ? 1000.0F : 1.0F);
    case Values::kGates:
      return draw_gate(source);
    case Values::kWide:
      return source.at_power(static_cast<int>(source.below(201)) - 140);
    case Values::kTiny:
      if (run_power < -149) return source.sign() * 0.0F;
      return source.at_power(run_power - static_cast<int>(source.below(3)));
    case Values::kHuge:
      return source.at_power(125 + static_cast<int>(source.below(3)));
    case Values::kTies:
      return 0.5F * (static_cast<float>(source.below(509)) - 254.0F);
    case Values::kSpecial:
      if (source.below(24) == 0) return draw_special(source);
      break;
  }
  return source.unit();
}

std::string words(float x) {
  return fmt::format("{} ({:08x})", x, std::bit_cast<std::uint32_t>(x));
}

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

template <typename Block>
std::string block_difference(std::span<const Block> actual, std::span<const Block> expected) {
  for (std::size_t b = 0; b < expected.size(); ++b) {
    Block block = actual[b];
    if (!same(block.d, expected[b].d)) {
      return fmt::format("block {}: scale {}, need {}", b, words(block.d), words(expected[b].d));
    }
    block.d = expected[b].d;
    const auto got = std::as_bytes(std::span(&block, 1));
    const auto need = std::as_bytes(expected.subspan(b, 1));
    const auto at = std::ranges::mismatch(got, need);
    if (at.in1 == got.end()) continue;
    const auto byte = static_cast<std::size_t>(at.in1 - got.begin());
    return fmt::format("block {}: {} {}: byte {:#04x}, need {:#04x}", b,
                       byte < sizeof(block.qs) ? "code" : "sums, byte", byte,
                       static_cast<unsigned>(*at.in1), static_cast<unsigned>(*at.in2));
  }
  return {};
}

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

std::string_view name_of(Values values) {
  constexpr std::string_view kNames[] = {"plain", "outlying", "gate",  "wide",
                                         "tiny",  "huge",     "tying", "special"};
  return kNames[static_cast<std::size_t>(values)];
}

std::vector<float> draw(Values values, std::size_t n, std::uint32_t seed) {
  Source source(seed * 8 + static_cast<std::uint32_t>(values));
  std::vector<float> x(n);
  int run_power = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (i % 32 == 0) run_power = static_cast<int>(source.below(33)) - 150;
    x[i] = draw_one(values, source, run_power);
    if (values == Values::kTies && i % 32 == 7) x[i] = 127.0F;
  }
  return x;
}

std::vector<std::size_t> odd_sizes(std::size_t own) {
  std::vector<std::size_t> sizes = {47, 48, 49, std::max<std::size_t>(2, own) - 1, own, own + 1};
  for (std::size_t n = 1; n <= 33; ++n) sizes.push_back(n);
  std::ranges::sort(sizes);
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  return sizes;
}

KernelQ8K kernel_block(const BlockQ8_K& block) {
  KernelQ8K out{};
  std::ranges::copy(block.qs, out.qs);
  out.d = block.d;
  for (std::size_t s = 0; s < 16; ++s) {
    out.sum += block.bsums[s];
    out.sums16[s] = block.bsums[s];
    out.sums32[s / 2] = static_cast<std::int16_t>(out.sums32[s / 2] + block.bsums[s]);
    out.minus32[s] = -32 * block.bsums[s];
  }
  return out;
}

KernelQ8x32 kernel_block(const BlockQ8_32& block) {
  KernelQ8x32 out{};
  std::ranges::copy(block.qs, out.qs);
  out.d = block.d;
  out.sum = block.sum;
  return out;
}

std::string first_difference(std::span<const float> actual, std::span<const float> expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!same(actual[i], expected[i])) {
      return fmt::format("element {}: {}, need {}", i, words(actual[i]), words(expected[i]));
    }
  }
  return {};
}

std::string first_difference(std::span<const std::uint16_t> actual,
                             std::span<const std::uint16_t> expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (actual[i] != expected[i]) {
      return fmt::format("element {}: {:04x}, need {:04x}", i, actual[i], expected[i]);
    }
  }
  return {};
}

std::string first_difference(std::span<const KernelQ8K> actual,
                             std::span<const KernelQ8K> expected) {
  return block_difference(actual, expected);
}

std::string first_difference(std::span<const KernelQ8x32> actual,
                             std::span<const KernelQ8x32> expected) {
  return block_difference(actual, expected);
}

std::string sizes_text(std::string_view name, std::size_t own) {
  return fmt::format("{} 1 .. 33, 47 .. 49, {} and next to it", name, own);
}

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
