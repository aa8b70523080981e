#pragma once

// The codecs of IQ4_NL, IQ4_XS and MXFP4, whose codes are indices of 16 values. Part of an ISA
// unit.

#include "quant/kernels/k_codecs.h"
#include "quant/kernels/simple_codecs.h"

namespace {

/// Group g: 32 weights, their indices in 16 bytes as in Q4_0. Format says what quads() delivers.
template <class Format>
struct TableCodec : Format {
  using Block = typename Format::Block;
  /// The value of each index, as products on A take it.
  template <class A>
  struct Values {
    alignas(16) std::int8_t of[16];
    constexpr Values() : of{} {
      for (int i = 0; i < 16; ++i) {
        of[i] = static_cast<std::int8_t>(Block::kValues[i] + code_offset<A, Format>());
      }
    }
  };
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    static constexpr Values<A> kValues;
    quads_4bit<A, Block, g>(block, out);
    for (int w = 0; w < 8; ++w) out[w / 4][w % 4] = look_up(kValues.of, out[w / 4][w % 4]);
  }
};

template <>
struct Codec<llm::BlockIQ4_NL> : TableCodec<SignedCodec<llm::BlockIQ4_NL>> {};

template <>
struct Codec<llm::BlockIQ4_XS> : TableCodec<SignedCodec<llm::BlockIQ4_XS>> {
  template <class A>
  static LLM_INLINE void scales(const std::byte* block, SubScales<A, 8>& out) {
    const std::byte* low = bytes_at<Block, offsetof(Block, scales_l), 4>(block);
    const std::byte* high = bytes_at<Block, offsetof(Block, scales_h), 2>(block);
    const auto bias = broadcast_i32<A>(32);
    static_for<8>([&]<int s>() LLM_INLINE_LAMBDA {
      const auto nibbles = widen_u8<A>(low + kPanelRows * (s / 2));
      const auto pairs = widen_u8<A>(high + kPanelRows * (s / 4));
      const auto low4 = shift_right<4 * (s % 2)>(nibbles) & broadcast_i32<A>(15);
      out.scale[s] = (low4 | two_bits_at_4<2 * (s % 4)>(pairs)) - bias;
    });
  }
};

/// Values of -12 .. 12, small enough to be unsigned with room for sums in 16 bits.
struct E2m1Format : FormatCodec<llm::BlockMXFP4> {
  static constexpr int kOffset = 12, kMaxCode = 24;
};
template <>
struct Codec<llm::BlockMXFP4> : TableCodec<E2m1Format> {};

}  // namespace
