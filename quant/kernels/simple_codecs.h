#pragma once

// The codecs of blocks with one scale: those of up to 128 weights, and Q8_K. Part of an ISA unit.

#include "quant/kernels/codec.h"

namespace {

/// Group g of blocks with two codes a byte, of the weights 32 g + i and 32 g + 16 + i.
template <class A, class B, int g>
LLM_INLINE void quads_4bit(const std::byte* block, Quad<A>* out) {
  const std::byte* qs = words_at<B, offsetof(B, qs) + 16 * g, 4>(block);
  for (int w = 0; w < 4; ++w) {
    const auto v = word<A>(qs, w);
    out[0][w] = low_nibbles(v);
    out[1][w] = high_nibbles(v);
  }
}

/// Bits [shift, shift + 4) of each lane as bit 4 of the lane's four bytes. The product puts bit i
/// at positions i + {0, 7, 14, 21}, which are all different, so bit i stands at bit 0 of byte i.
template <int kShift, class A>
LLM_INLINE I32x16<A> spread_bits_at_4(const I32x16<A>& v) {
  const auto four = shift_right<kShift>(v) & broadcast_i32<A>(15);
  return shift_left<4>((four * broadcast_i32<A>(0x00204081)) & broadcast_i32<A>(0x01010101));
}

template <class B, int kCodeOffset = 0>
struct NibbleCodec : FormatCodec<B> {
  static constexpr int kOffset = kCodeOffset, kMaxCode = 15;
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    quads_4bit<A, B, g>(block, out);
  }
};

template <>
struct Codec<llm::BlockQ4_0> : NibbleCodec<llm::BlockQ4_0, 8> {};
template <>
struct Codec<llm::BlockQ4_1> : NibbleCodec<llm::BlockQ4_1> {};

/// Nibbles, and a fifth bit of each of 32 codes in a word.
template <class B, int kCodeOffset = 0>
struct FiveBitCodec : FormatCodec<B> {
  static constexpr int kOffset = kCodeOffset, kMaxCode = 31;
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    const auto high = word<A>(words_at<B, offsetof(B, qh), 1>(block), 0);
    const std::byte* qs = words_at<B, offsetof(B, qs), 4>(block);
    static_for<4>([&]<int w>() LLM_INLINE_LAMBDA {
      const auto v = word<A>(qs, w);
      out[0][w] = low_nibbles(v) | spread_bits_at_4<4 * w>(high);
      out[1][w] = high_nibbles(v) | spread_bits_at_4<16 + 4 * w>(high);
    });
  }
};

template <>
struct Codec<llm::BlockQ5_0> : FiveBitCodec<llm::BlockQ5_0, 16> {};
template <>
struct Codec<llm::BlockQ5_1> : FiveBitCodec<llm::BlockQ5_1> {};

/// A sign for each code, given as 0 or 2. PackedLayout says which weight each bit is.
template <>
struct Codec<llm::BlockQ1_0> : FormatCodec<llm::BlockQ1_0> {
  static constexpr int kOffset = 1, kMaxCode = 2;
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    const auto v = word<A>(words_at<Block, offsetof(Block, qs) + 4 * g, 1>(block), 0);
    static_for<8>([&]<int w>() LLM_INLINE_LAMBDA {
      constexpr int kBit = 4 * (w % 2) + w / 2;
      const auto at_1 = kBit == 0 ? shift_left<1>(v) : shift_right<(kBit == 0 ? 0 : kBit - 1)>(v);
      out[w / 4][w % 4] = at_1 & broadcast_i32<A>(0x02020202);
    });
  }
};

template <>
struct Codec<llm::BlockQ2_0> : FormatCodec<llm::BlockQ2_0> {
  static constexpr int kOffset = 1, kMaxCode = 3;
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    const std::byte* qs = words_at<Block, offsetof(Block, qs) + 8 * g, 2>(block);
    for (int q = 0; q < 2; ++q) {
      const auto v = word<A>(qs, q);
      static_for<4>([&]<int w>() LLM_INLINE_LAMBDA {
        out[q][w] = shift_right<2 * w>(v) & broadcast_i32<A>(0x03030303);
      });
    }
  }
};

/// A byte for each code.
template <class B>
struct ByteCodec : SignedCodec<B> {
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    const std::byte* qs = words_at<B, offsetof(B, qs) + 32 * g, 8>(block);
    for (int w = 0; w < 8; ++w) out[w / 4][w % 4] = signed_codes(word<A>(qs, w));
  }
};

template <>
struct Codec<llm::BlockQ8_0> : ByteCodec<llm::BlockQ8_0> {};
template <>
struct Codec<llm::BlockQ8_K> : ByteCodec<llm::BlockQ8_K> {};

}  // namespace
