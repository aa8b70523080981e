#pragma once

// The codecs of the K-quants, whose sub-blocks have integer scales. Part of an ISA unit.

#include "quant/kernels/codec.h"

namespace {

// 6-bit scales and minima of Q4_K and Q5_K. A byte below is one scale byte of each row, widened.
template <class B, int kQuads>
struct SixBitScalesCodec : FormatCodec<B, kQuads> {
  template <class A>
  static LLM_INLINE void scales(const std::byte* block, SubScales<A, 8>& out) {
    const std::byte* packed = bytes_at<B, offsetof(B, scales), 12>(block);
    const auto byte = [&](std::size_t i) { return widen_u8<A>(packed + kPanelRows * i); };
    const auto low6 = broadcast_i32<A>(63);
    const auto low4 = broadcast_i32<A>(15);
    for (std::size_t j = 0; j < 4; ++j) {
      const auto a = byte(j), b = byte(j + 4), c = byte(j + 8);
      out.scale[j] = a & low6;
      out.min[j] = b & low6;
      out.scale[j + 4] = (c & low4) | shift_left<4>(shift_right<6>(a));
      out.min[j + 4] = shift_right<4>(c) | shift_left<4>(shift_right<6>(b));
    }
  }
};

template <>
struct Codec<llm::BlockQ4_K> : SixBitScalesCodec<llm::BlockQ4_K, 4> {
  static constexpr int kMaxCode = 15;
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    const std::byte* qs = words_at<Block, offsetof(Block, qs) + 32 * g, 8>(block);
    for (int w = 0; w < 8; ++w) {
      const auto v = word<A>(qs, w);
      out[w / 4][w % 4] = low_nibbles(v);
      out[2 + w / 4][w % 4] = high_nibbles(v);
    }
  }
};

template <>
struct Codec<llm::BlockQ5_K> : SixBitScalesCodec<llm::BlockQ5_K, 2> {
  static constexpr int kMaxCode = 31;
  // Group g = 4 * half + run: four words of a run of 64 weights, the first or second half of its
  // two 32s; their fifth bits are bits 2 * run and 2 * run + 1 of four words that all runs share.
  static constexpr int quad_at(int g, int i) { return 4 * (g % 4) + 2 * i + g / 4; }
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    constexpr int run = g % 4;
    constexpr int half = g / 4;
    const std::byte* qh = words_at<Block, offsetof(Block, qh) + 16 * half, 4>(block);
    const std::byte* qs = words_at<Block, offsetof(Block, qs) + 32 * run + 16 * half, 4>(block);
    const auto bit4 = broadcast_i32<A>(0x10101010);
    for (int w = 0; w < 4; ++w) {
      const auto high = word<A>(qh, w);
      const auto v = word<A>(qs, w);
      const auto low_bit = run < 2 ? shift_left<(run < 2 ? 4 - 2 * run : 0)>(high)
                                   : shift_right<(run < 2 ? 0 : 2 * run - 4)>(high);
      const auto high_bit = run < 2 ? shift_left<(run < 2 ? 3 - 2 * run : 0)>(high)
                                    : shift_right<(run < 2 ? 0 : 2 * run - 3)>(high);
      out[0][w] = low_nibbles(v) | (low_bit & bit4);
      out[1][w] = high_nibbles(v) | (high_bit & bit4);
    }
  }
};

// Q2_K, Q3_K and Q6_K hold the codes of 128 weights in bit pairs, or nibbles, of bytes 32 weights
// apart. Group g = 2 * half + h: of each 32 weights of half `half`, the 16 from 16 h on.
template <class B>
struct RunsOf32Codec : FormatCodec<B, 4> {
  static constexpr int quad_at(int g, int i) { return 8 * (g / 2) + 2 * i + g % 2; }
};

/// Bits [shift, shift + 2) of each byte, moved to bits [4, 6).
template <int kShift, class A>
LLM_INLINE I32x16<A> two_bits_at_4(const I32x16<A>& v) {
  if constexpr (kShift <= 4) {
    return shift_left<4 - kShift>(v) & broadcast_i32<A>(0x30303030);
  } else {
    return shift_right<kShift - 4>(v) & broadcast_i32<A>(0x30303030);
  }
}

template <>
struct Codec<llm::BlockQ6_K> : RunsOf32Codec<llm::BlockQ6_K> {
  static constexpr int kOffset = 32, kMaxCode = 63;
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    constexpr std::size_t kQh = offsetof(Block, qh) + 32 * (g / 2) + 16 * (g % 2);
    constexpr std::size_t kQl = offsetof(Block, ql) + 64 * (g / 2) + 16 * (g % 2);
    const std::byte* qh = words_at<Block, kQh, 4>(block);
    const std::byte* first = words_at<Block, kQl, 4>(block);
    const std::byte* second = words_at<Block, kQl + 32, 4>(block);
    for (int i = 0; i < 4; ++i) {
      const auto high = word<A>(qh, i);
      const auto a = word<A>(first, i);
      const auto b = word<A>(second, i);
      out[0][i] = low_nibbles(a) | two_bits_at_4<0>(high);
      out[1][i] = low_nibbles(b) | two_bits_at_4<2>(high);
      out[2][i] = high_nibbles(a) | two_bits_at_4<4>(high);
      out[3][i] = high_nibbles(b) | two_bits_at_4<6>(high);
    }
  }
  template <class A>
  static LLM_INLINE I32x16<A> scale_of(const std::byte* block, std::size_t sub) {
    return widen_s8<A>(bytes_at<Block, offsetof(Block, scales), 16>(block) + kPanelRows * sub);
  }
  template <class A>
  static LLM_INLINE void scales(const std::byte* block, SubScales<A, 16>& out) {
    for (std::size_t s = 0; s < 16; ++s) out.scale[s] = scale_of<A>(block, s);
  }
};

/// The bit pairs of Q2_K and Q3_K: quad i = bits 2 i.
template <class A, class B, int g>
LLM_INLINE void quads_2bit(const std::byte* block, Quad<A>* out) {
  const std::byte* qs = words_at<B, offsetof(B, qs) + 32 * (g / 2) + 16 * (g % 2), 4>(block);
  const auto low2 = broadcast_i32<A>(0x03030303);
  for (int i = 0; i < 4; ++i) {
    const auto v = word<A>(qs, i);
    out[0][i] = v & low2;
    out[1][i] = shift_right<2>(v) & low2;
    out[2][i] = shift_right<4>(v) & low2;
    out[3][i] = shift_right<6>(v) & low2;
  }
}

template <>
struct Codec<llm::BlockQ2_K> : RunsOf32Codec<llm::BlockQ2_K> {
  static constexpr int kMaxCode = 3;
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    quads_2bit<A, Block, g>(block, out);
  }
  template <class A>
  static LLM_INLINE void scales(const std::byte* block, SubScales<A, 16>& out) {
    const std::byte* packed = bytes_at<Block, offsetof(Block, scales), 16>(block);
    for (std::size_t s = 0; s < 16; ++s) {
      const auto v = widen_u8<A>(packed + kPanelRows * s);
      out.scale[s] = v & broadcast_i32<A>(15);
      out.min[s] = shift_right<4>(v);
    }
  }
};

template <>
struct Codec<llm::BlockQ3_K> : RunsOf32Codec<llm::BlockQ3_K> {
  static constexpr int kOffset = 4, kMaxCode = 7;
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    quads_2bit<A, Block, g>(block, out);
    const std::byte* hmask = words_at<Block, offsetof(Block, hmask) + 16 * (g % 2), 4>(block);
    const auto bit2 = broadcast_i32<A>(0x04040404);
    for (int i = 0; i < 4; ++i) {
      const auto high = shift_right<4 * (g / 2)>(word<A>(hmask, i));
      out[0][i] = out[0][i] | (shift_left<2>(high) & bit2);
      out[1][i] = out[1][i] | (shift_left<1>(high) & bit2);
      out[2][i] = out[2][i] | (high & bit2);
      out[3][i] = out[3][i] | (shift_right<1>(high) & bit2);
    }
  }
  template <class A>
  static LLM_INLINE void scales(const std::byte* block, SubScales<A, 16>& out) {
    const std::byte* packed = bytes_at<Block, offsetof(Block, scales), 12>(block);
    const auto byte = [&](std::size_t i) { return widen_u8<A>(packed + kPanelRows * i); };
    const auto bias = broadcast_i32<A>(32);
    for (std::size_t j = 0; j < 4; ++j) {
      const auto high = byte(8 + j);
      const auto combine = [&](const I32x16<A>& low, const I32x16<A>& shifted) {
        return ((low & broadcast_i32<A>(15)) | (shifted & broadcast_i32<A>(0x30))) - bias;
      };
      out.scale[j] = combine(byte(j), shift_left<4>(high));
      out.scale[j + 4] = combine(byte(j + 4), shift_left<2>(high));
      out.scale[j + 8] = combine(shift_right<4>(byte(j)), high);
      out.scale[j + 12] = combine(shift_right<4>(byte(j + 4)), shift_right<2>(high));
    }
  }
};

}  // namespace
