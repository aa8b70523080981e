#include "quant/formats/quantize/k_quants.h"

#include <array>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/cpu_features.h"
#include "quant/formats/packed_scales.h"
#include "quant/formats/quantize/affine_search.h"
#include "quant/formats/quantize/symmetric_search.h"

namespace llm {
namespace {

/// Byte 32h + l gets codes 128h + l + {0, 32, 64, 96} in ascending bit pairs, lowest two bits of
/// each.
LLM_LANES_INLINE void store_bit_pairs(const std::uint8_t (&codes)[256], std::uint8_t (&out)[64]) {
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint8_t* first = codes + 128 * (i / 32) + i % 32;
    out[i] = static_cast<std::uint8_t>((first[0] & 3) | (first[32] & 3) << 2 |
                                       (first[64] & 3) << 4 | (first[96] & 3) << 6);
  }
}

/// Bit k of byte l gets bit `bit` of code 32k + l.
LLM_LANES_INLINE void store_bits(const std::uint8_t (&codes)[256], int bit,
                                 std::uint8_t (&out)[32]) {
  for (std::size_t l = 0; l < 32; ++l) {
    unsigned byte = 0;
    for (std::size_t k = 0; k < 8; ++k) byte |= (codes[32 * k + l] >> bit & 1u) << k;
    out[l] = static_cast<std::uint8_t>(byte);
  }
}

/// Byte 32c + l gets the low four bits of codes 64c + l and 64c + 32 + l.
LLM_LANES_INLINE void store_nibbles(const std::uint8_t (&codes)[256], std::uint8_t (&out)[128]) {
  for (std::size_t i = 0; i < 128; ++i) {
    const std::uint8_t* first = codes + 64 * (i / 32) + i % 32;
    out[i] = static_cast<std::uint8_t>((first[0] & 15) | (first[32] & 15) << 4);
  }
}

LLM_LANES_INLINE void pack_scale_mins(const AffineBlock<8>& found, std::uint8_t (&packed)[12]) {
  ScaleMin pairs[8];
  for (std::size_t s = 0; s < 8; ++s) pairs[s] = {found.scale[s], found.min[s]};
  pack_k_scale_mins(pairs, packed);
}

LLM_LANES_INLINE void quantize(const float* weights, BlockQ2_K& out) {
  AffineSearch<2, 16, 3, 15> search;
  AffineBlock<16> found;
  search.run(weights, found);
  out.d = found.d;
  out.dmin = found.dmin;
  for (std::size_t s = 0; s < 16; ++s) {
    out.scales[s] = static_cast<std::uint8_t>(found.scale[s] | found.min[s] << 4);
  }
  store_bit_pairs(found.codes, out.qs);
}

/// Q4_K and Q5_K.
template <int kMaxCode, typename Block>
LLM_LANES_INLINE void quantize_32s(const float* weights, Block& out) {
  AffineSearch<1, 32, kMaxCode, 63> search;
  AffineBlock<8> found;
  search.run(weights, found);
  out.d = found.d;
  out.dmin = found.dmin;
  pack_scale_mins(found, out.scales);
  store_nibbles(found.codes, out.qs);
  if constexpr (requires { out.qh; }) store_bits(found.codes, 4, out.qh);
}
LLM_LANES_INLINE void quantize(const float* weights, BlockQ4_K& out) {
  quantize_32s<15>(weights, out);
}
LLM_LANES_INLINE void quantize(const float* weights, BlockQ5_K& out) {
  quantize_32s<31>(weights, out);
}

/// Codes with `offset` added, so that they are unsigned.
LLM_LANES_INLINE void add_offset(const SymmetricBlock<16>& found, int offset,
                                 std::uint8_t (&codes)[256]) {
  for (std::size_t j = 0; j < 256; ++j) {
    codes[j] = static_cast<std::uint8_t>(found.codes[j] + offset);
  }
}

LLM_LANES_INLINE void quantize(const float* weights, BlockQ3_K& out) {
  SymmetricSearch<EvenGrid<4>, 2, 32, 2> search;
  SymmetricBlock<16> found;
  search.run(weights, found);
  std::uint8_t codes[256];
  add_offset(found, 4, codes);
  std::uint8_t scales[16];
  for (std::size_t s = 0; s < 16; ++s) {
    scales[s] = static_cast<std::uint8_t>(found.scale[s] + 32);
  }
  out.d = found.d;
  pack_q3_k_scales(scales, out.scales);
  store_bit_pairs(codes, out.qs);
  store_bits(codes, 2, out.hmask);
}

LLM_LANES_INLINE void quantize(const float* weights, BlockQ6_K& out) {
  SymmetricSearch<EvenGrid<32>, 2, 128, 8> search;
  SymmetricBlock<16> found;
  search.run(weights, found);
  std::uint8_t codes[256];
  add_offset(found, 32, codes);
  out.d = found.d;
  std::memcpy(out.scales, found.scale, sizeof(out.scales));
  for (std::size_t i = 0; i < 128; ++i) {
    const std::uint8_t* first = codes + 128 * (i / 64) + i % 64;
    out.ql[i] = static_cast<std::uint8_t>((first[0] & 15) | (first[64] & 15) << 4);
  }
  for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(code >> 4);
  store_bit_pairs(codes, out.qh);
}

/// At v + 128 the index of v among the values of the IQ4 types.
constexpr auto kIq4Indices = [] {
  std::array<std::uint8_t, 256> indices{};
  for (std::uint8_t i = 0; i < 16; ++i) {
    indices[static_cast<std::size_t>(kIq4Values[i] + 128)] = i;
  }
  return indices;
}();

LLM_LANES_INLINE void quantize(const float* weights, BlockIQ4_XS& out) {
  SymmetricSearch<Iq4Grid, 1, 32, 4> search;
  SymmetricBlock<8> found;
  search.run(weights, found);
  out.d = found.d;
  std::uint8_t scales[8];
  for (std::size_t s = 0; s < 8; ++s) scales[s] = static_cast<std::uint8_t>(found.scale[s] + 32);
  pack_iq4_xs_scales(scales, out);
  const auto index = [&](std::size_t j) {
    return kIq4Indices[static_cast<std::size_t>(found.codes[j] + 128)];
  };
  for (std::size_t i = 0; i < 128; ++i) {
    const std::size_t first = 32 * (i / 16) + i % 16;
    out.qs[i] = static_cast<std::uint8_t>(index(first) | index(first + 16) << 4);
  }
}

template <typename Block>
LLM_LANES_INLINE void quantize_all(std::span<const float> weights, std::span<std::byte> out) {
  for (std::size_t b = 0; b < weights.size() / Block::kWeights; ++b) {
    Block block;
    quantize(weights.data() + b * Block::kWeights, block);
    std::memcpy(out.data() + b * sizeof(Block), &block, sizeof(Block));
  }
}

// One function a type and unit: the whole search is inlined into it, with the instructions that the
// function may use.

template <typename Block>
[[gnu::noinline]] void run_baseline(std::span<const float> weights, std::span<std::byte> out) {
  quantize_all<Block>(weights, out);
}

#if defined(__x86_64__)
template <typename Block>
[[gnu::noinline, gnu::target("avx2")]] void run_avx2(std::span<const float> weights,
                                                     std::span<std::byte> out) {
  quantize_all<Block>(weights, out);
}
#endif

template <typename Block>
void run(SearchUnit unit, std::span<const float> weights, std::span<std::byte> out) {
#if defined(__x86_64__)
  if (unit == SearchUnit::kAvx2) return run_avx2<Block>(weights, out);
#endif
  LLM_CHECK(unit == SearchUnit::kBaseline);
  run_baseline<Block>(weights, out);
}

}  // namespace

SearchUnit best_search_unit() {
#if defined(__x86_64__)
  static const bool has_avx2 = isa_supported(Isa::kAvx2);
  if (has_avx2) return SearchUnit::kAvx2;
#endif
  return SearchUnit::kBaseline;
}

void quantize_k_blocks(SearchUnit unit, WeightType type, std::span<const float> weights,
                       std::span<std::byte> out) {
  LLM_CHECK(out.size() == row_bytes(type, weights.size()));
  switch (type) {
    case WeightType::kQ2_K:
      return run<BlockQ2_K>(unit, weights, out);
    case WeightType::kQ3_K:
      return run<BlockQ3_K>(unit, weights, out);
    case WeightType::kQ4_K:
      return run<BlockQ4_K>(unit, weights, out);
    case WeightType::kQ5_K:
      return run<BlockQ5_K>(unit, weights, out);
    case WeightType::kQ6_K:
      return run<BlockQ6_K>(unit, weights, out);
    case WeightType::kIQ4_XS:
      return run<BlockIQ4_XS>(unit, weights, out);
    default:
      LLM_CHECK(false && "not searched by super-blocks");
  }
}

}  // namespace llm
