#include "quant/formats/quantize/lane_search.h"

#include <array>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/cpu_features.h"
#include "quant/formats/block_visit.h"
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

template <bool kWeighted>
LLM_LANES_INLINE void quantize(const float* weights, const float* error_weights, BlockQ2_K& out) {
  AffineSearch<2, 16, 3, 15, kWeighted> search;
  AffineBlock<16> found;
  search.run(weights, error_weights, found);
  out.d = found.d;
  out.dmin = found.dmin;
  for (std::size_t s = 0; s < 16; ++s) {
    out.scales[s] = static_cast<std::uint8_t>(found.scale[s] | found.min[s] << 4);
  }
  store_bit_pairs(found.codes, out.qs);
}

/// Q4_K and Q5_K.
template <int kMaxCode, bool kWeighted, typename Block>
LLM_LANES_INLINE void quantize_32s(const float* weights, const float* error_weights, Block& out) {
  AffineSearch<1, 32, kMaxCode, 63, kWeighted> search;
  AffineBlock<8> found;
  search.run(weights, error_weights, found);
  out.d = found.d;
  out.dmin = found.dmin;
  pack_scale_mins(found, out.scales);
  store_nibbles(found.codes, out.qs);
  if constexpr (requires { out.qh; }) store_bits(found.codes, 4, out.qh);
}
template <bool kWeighted>
LLM_LANES_INLINE void quantize(const float* weights, const float* error_weights, BlockQ4_K& out) {
  quantize_32s<15, kWeighted>(weights, error_weights, out);
}
template <bool kWeighted>
LLM_LANES_INLINE void quantize(const float* weights, const float* error_weights, BlockQ5_K& out) {
  quantize_32s<31, kWeighted>(weights, error_weights, out);
}

/// Codes with `offset` added, so that they are unsigned.
LLM_LANES_INLINE void add_offset(const SymmetricBlock<16>& found, int offset,
                                 std::uint8_t (&codes)[256]) {
  for (std::size_t j = 0; j < 256; ++j) {
    codes[j] = static_cast<std::uint8_t>(found.codes[j] + offset);
  }
}

template <bool kWeighted>
LLM_LANES_INLINE void quantize(const float* weights, const float* error_weights, BlockQ3_K& out) {
  SymmetricSearch<EvenGrid<4>, 2, 32, 2, kWeighted> search;
  SymmetricBlock<16> found;
  search.run(weights, error_weights, found);
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

template <bool kWeighted>
LLM_LANES_INLINE void quantize(const float* weights, const float* error_weights, BlockQ6_K& out) {
  SymmetricSearch<EvenGrid<32>, 2, 128, 8, kWeighted> search;
  SymmetricBlock<16> found;
  search.run(weights, error_weights, found);
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

template <bool kWeighted>
LLM_LANES_INLINE void quantize(const float* weights, const float* error_weights, BlockIQ4_XS& out) {
  SymmetricSearch<Iq4Grid, 1, 32, 4, kWeighted> search;
  SymmetricBlock<8> found;
  search.run(weights, error_weights, found);
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

/// Blocks of 32 by their codes, each of which is at least 0.
template <typename Block>
LLM_LANES_INLINE void store_32(const std::uint8_t* codes, Block& out) {
  for (std::size_t j = 0; j < 16; ++j)
    out.qs[j] = static_cast<std::uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
  if constexpr (requires { out.qh; }) {
    for (std::size_t i = 0; i < 4; ++i) {
      unsigned byte = 0;
      for (std::size_t bit = 0; bit < 8; ++bit) byte |= (codes[8 * i + bit] >> 4 & 1u) << bit;
      out.qh[i] = static_cast<std::uint8_t>(byte);
    }
  }
}

/// Q4_0, Q5_0 and IQ4_NL: eight blocks. @param code_of  what is stored of a value of the grid
template <class Grid, bool kWeighted, typename Block, typename CodeOf>
LLM_LANES_INLINE void quantize_symmetric(const float* weights, const float* error_weights,
                                         Block* out, const CodeOf& code_of) {
  SymmetricSearch<Grid, 1, 0, 0, kWeighted> search;
  SymmetricBlocks found;
  search.run(weights, error_weights, found);
  for (std::size_t b = 0; b < kLanes; ++b) {
    std::uint8_t codes[32];
    for (std::size_t j = 0; j < 32; ++j) codes[j] = code_of(found.codes[32 * b + j]);
    out[b].d = found.d[b];
    store_32(codes, out[b]);
  }
}
template <bool kWeighted>
LLM_LANES_INLINE void quantize(const float* weights, const float* error_weights, BlockQ4_0* out) {
  quantize_symmetric<EvenGrid<8>, kWeighted>(
      weights, error_weights, out, [](int value) { return static_cast<std::uint8_t>(value + 8); });
}
template <bool kWeighted>
LLM_LANES_INLINE void quantize(const float* weights, const float* error_weights, BlockQ5_0* out) {
  quantize_symmetric<EvenGrid<16>, kWeighted>(
      weights, error_weights, out, [](int value) { return static_cast<std::uint8_t>(value + 16); });
}
template <bool kWeighted>
LLM_LANES_INLINE void quantize(const float* weights, const float* error_weights, BlockIQ4_NL* out) {
  quantize_symmetric<Iq4Grid, kWeighted>(weights, error_weights, out, [](int value) {
    return kIq4Indices[static_cast<std::size_t>(value + 128)];
  });
}

/// Q4_1 and Q5_1: eight blocks.
template <int kMaxCode, bool kWeighted, typename Block>
LLM_LANES_INLINE void quantize_affine(const float* weights, const float* error_weights,
                                      Block* out) {
  AffineSearch<1, 32, kMaxCode, 0, kWeighted> search;
  AffineBlocks found;
  search.run(weights, error_weights, found);
  for (std::size_t b = 0; b < kLanes; ++b) {
    out[b].d = found.d[b];
    out[b].m = found.m[b];
    store_32(found.codes + 32 * b, out[b]);
  }
}
template <bool kWeighted>
LLM_LANES_INLINE void quantize(const float* weights, const float* error_weights, BlockQ4_1* out) {
  quantize_affine<15, kWeighted>(weights, error_weights, out);
}
template <bool kWeighted>
LLM_LANES_INLINE void quantize(const float* weights, const float* error_weights, BlockQ5_1* out) {
  quantize_affine<31, kWeighted>(weights, error_weights, out);
}

/// 256 weights: one block, or eight.
template <bool kWeighted, typename Block>
LLM_LANES_INLINE void quantize_256(const float* weights, const float* error_weights, Block* out) {
  if constexpr (Block::kWeights == 256) {
    quantize<kWeighted>(weights, error_weights, *out);
  } else {
    quantize<kWeighted>(weights, error_weights, out);
  }
}

// One function a type, unit and kind of weights: the whole search is inlined into it, with the
// instructions that the function may use.

template <bool kWeighted, typename Block>
[[gnu::noinline]] void run_baseline(const float* weights, const float* error_weights, Block* out) {
  quantize_256<kWeighted>(weights, error_weights, out);
}

#if defined(__x86_64__)
template <bool kWeighted, typename Block>
[[gnu::noinline, gnu::target("avx2")]] void run_avx2(const float* weights,
                                                     const float* error_weights, Block* out) {
  quantize_256<kWeighted>(weights, error_weights, out);
}
#endif

template <bool kWeighted, typename Block>
void run(SearchUnit unit, const float* weights, const float* error_weights, Block* out) {
#if defined(__x86_64__)
  if (unit == SearchUnit::kAvx2) return run_avx2<kWeighted>(weights, error_weights, out);
#endif
  LLM_CHECK(unit == SearchUnit::kBaseline);
  run_baseline<kWeighted>(weights, error_weights, out);
}

}  // namespace

SearchUnit best_search_unit() {
#if defined(__x86_64__)
  static const bool has_avx2 = isa_supported(Isa::kAvx2);
  if (has_avx2) return SearchUnit::kAvx2;
#endif
  return SearchUnit::kBaseline;
}

void search_blocks(SearchUnit unit, WeightType type, std::span<const float> weights,
                   std::span<const float> error_weights, std::span<std::byte> out) {
  LLM_CHECK(weights.size() == 256 && out.size() == row_bytes(type, 256));
  LLM_CHECK(error_weights.empty() || error_weights.size() == 256);
  visit_block_format(type, [&]<typename Block>() {
    if constexpr (kIsSearchedInLanes<Block>) {
      Block blocks[256 / Block::kWeights];
      if (error_weights.empty()) {
        run<false>(unit, weights.data(), nullptr, blocks);
      } else {
        run<true>(unit, weights.data(), error_weights.data(), blocks);
      }
      std::memcpy(out.data(), blocks, sizeof(blocks));
    } else {
      LLM_CHECK(false && "not searched in lanes");
    }
  });
}

}  // namespace llm
