#pragma once

#include "quant/formats/block_visit.h"
#include "quant/formats/codes.h"
#include "quant/formats/half.h"
#include "tests/support/test.h"

namespace llm::testing {

/// The bytes of tests/golden/<name>; empty when it cannot be read.
inline std::vector<std::byte> read_golden(const std::string& name) {
  const std::string text = test::read_file(LLM_SOURCE_DIR "/tests/golden/" + name);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::vector<float> as_floats(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

/// Index of the first byte that differs, or -1 when both are equal.
inline std::ptrdiff_t first_difference(std::span<const std::byte> a, std::span<const std::byte> b) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i] != b[i]) return static_cast<std::ptrdiff_t>(i);
  }
  return a.size() == b.size() ? -1 : static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
}

/// Byte offsets of the f16 scales in a block of `type`; empty where there are none.
inline std::vector<std::size_t> f16_offsets(WeightType type) {
  return visit_block_format(type, []<typename Block>() {
    std::vector<std::size_t> offsets;
    if constexpr (requires { Block::d; }) {
      if (std::is_same_v<decltype(Block::d), std::uint16_t>) offsets.push_back(offsetof(Block, d));
    }
    if constexpr (requires { Block::m; }) offsets.push_back(offsetof(Block, m));
    if constexpr (requires { Block::dmin; }) offsets.push_back(offsetof(Block, dmin));
    return offsets;
  });
}

inline void store_f16(std::vector<std::byte>& bytes, std::size_t offset, std::uint16_t bits) {
  std::memcpy(bytes.data() + offset, &bits, sizeof(bits));
}

/// Gives the IQ1_M at `offset` a scale.
inline void store_iq1_m_scale(std::vector<std::byte>& bytes, std::size_t offset,
                              std::uint16_t bits) {
  BlockIQ1_M block;
  std::memcpy(&block, bytes.data() + offset, sizeof(block));
  contract::set_iq1_m_scale_bits(block, bits);
  std::memcpy(bytes.data() + offset, &block, sizeof(block));
}

/// Gives the block at `block` the scale `bits`, an f16, in whatever form its type has it: at
/// `offset` for f16 scales. Not for MXFP4 and NVFP4.
inline void store_scale(WeightType type, std::vector<std::byte>& bytes, std::size_t block,
                        std::size_t offset, std::uint16_t bits) {
  const float wide = f16_to_f32(bits);
  if (type == WeightType::kF32 || type == WeightType::kQ8_K) {
    std::memcpy(bytes.data() + block, &wide, sizeof(wide));
  } else if (type == WeightType::kIQ1_M) {
    store_iq1_m_scale(bytes, block, bits);
  } else {
    store_f16(bytes, block + offset, type == WeightType::kBF16 ? f32_to_bf16(wide) : bits);
  }
}

/// Random bytes with every scale replaced by a finite one of weight-like size; float types get
/// normal values of standard deviation 0.05.
inline std::vector<std::byte> random_blocks(WeightType type, std::size_t n_weights,
                                            std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<std::byte> bytes(row_bytes(type, n_weights));
  const std::size_t block_bytes = block_traits(type).block_bytes;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xFF);
  for (std::size_t at = 0; at < bytes.size(); at += block_bytes) {
    const float value = normal(random);
    switch (type) {
      case WeightType::kF32:
      case WeightType::kQ8_K:
        std::memcpy(bytes.data() + at, &value, sizeof(value));
        break;
      case WeightType::kF16:
        store_f16(bytes, at, f32_to_f16(value));
        break;
      case WeightType::kBF16:
        store_f16(bytes, at, f32_to_bf16(value));
        break;
      case WeightType::kMXFP4:
        bytes[at] = static_cast<std::byte>(116 + random() % 6);
        break;
      case WeightType::kIQ1_M:
        store_iq1_m_scale(bytes, at, f32_to_f16(value / 16));
        break;
      case WeightType::kNVFP4:
        for (std::size_t s = 0; s < 4; ++s) bytes[at + s] = static_cast<std::byte>(random() % 16);
        break;
      default:
        for (const std::size_t offset : f16_offsets(type)) {
          store_f16(bytes, at + offset, f32_to_f16(normal(random) / 16));
        }
    }
  }
  return bytes;
}

inline std::vector<float> random_normals(std::size_t n, float deviation, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

/// The traits of every type, as a container for Catch2's from_range.
inline std::vector<WeightType> all_weight_types() {
  std::vector<WeightType> types;
  for (const BlockTraits& traits : all_block_traits()) types.push_back(traits.type);
  return types;
}

}  // namespace llm::testing
