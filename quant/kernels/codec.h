#pragma once

// How a packed block becomes 8-bit code words and scales in 16 lanes: what a codec is, and what all
// share. Part of an ISA unit.
//
// A codec delivers a block's codes as *quads*: 4 words of 4 codes, 16 consecutive k, one row
// per lane. quads(block, g) unpacks group g, kGroupQuads quads that share loads; quad_at(g, i) says
// which quad (k / 16) the i-th one is. Formats: quant/formats/block_formats.h; where a packed block
// has what the file's block has at a byte offset: quant/kernels/packed_layout.h.

#include <cstddef>
#include <type_traits>

#include "quant/kernels/packed_layout.h"
#include "quant/kernels/simd/lane16.h"

namespace {

using namespace lane16;
using llm::contract::kPanelRows;

template <class A>
using Quad = I32x16<A>[4];

/// body.operator()<0>(), ... body.operator()<kCount - 1>(): a loop whose counter is a constant.
template <int kCount, int kFirst = 0, class Body>
LLM_INLINE void static_for(const Body& body) {
  if constexpr (kFirst < kCount) {
    body.template operator()<kFirst>();
    static_for<kCount, kFirst + 1>(body);
  }
}

// ---- elements of a packed block, named by their offset in the file's block

/// kCount words from byte kOffset of the file's block on; word w of the 16 rows is at + 64 w.
template <class Block, std::size_t kOffset, std::size_t kCount>
LLM_INLINE const std::byte* words_at(const std::byte* block) {
  constexpr std::size_t kBefore = llm::packed_position<Block>(llm::packed_words(kOffset, kCount));
  return block + kPanelRows * kBefore;
}
template <class A>
LLM_INLINE I32x16<A> word(const std::byte* words, int w) {
  return load_i32<A>(words + 64 * w);
}
/// kCount bytes from kOffset on; byte i of the 16 rows is at + 16 i.
template <class Block, std::size_t kOffset, std::size_t kCount>
LLM_INLINE const std::byte* bytes_at(const std::byte* block) {
  constexpr std::size_t kBefore = llm::packed_position<Block>(llm::packed_bytes(kOffset, kCount));
  return block + kPanelRows * kBefore;
}
template <class A, class Block, std::size_t kOffset>
LLM_INLINE F32x16<A> half_at(const std::byte* block) {
  constexpr std::size_t kBefore = llm::packed_position<Block>(llm::packed_halves(kOffset, 1));
  return from_half<A>(block + kPanelRows * kBefore);
}
/// See e8m0_half_to_f32().
template <class A, class Block, std::size_t kOffset>
LLM_INLINE F32x16<A> e8m0_half_at(const std::byte* block) {
  const auto power = [](const I32x16<A>& biased) { return from_bits(shift_left<23>(biased)); };
  const auto e = widen_u8<A>(bytes_at<Block, kOffset, 1>(block));
  const auto half = shift_right<1>(e);
  const auto bias = broadcast_i32<A>(63);
  return power(half + bias) * power(e - half + bias);
}
template <class A, class Block, std::size_t kOffset>
LLM_INLINE F32x16<A> float_at(const std::byte* block) {
  return load_f32<A>(reinterpret_cast<const float*>(words_at<Block, kOffset, 1>(block)));
}

// ---- codecs

/// Integer scales and, for types with one, minima of a super-block, one sub-block per row, in int32
/// lanes.
template <class A, int kSubs>
struct SubScales {
  I32x16<A> scale[kSubs];
  I32x16<A> min[kSubs];
};

/// The codec of a block format, derived from FormatCodec. It adds quads() and, where kSubs is not
/// 0, scales(); it replaces what differs from the defaults.
template <class Block>
struct Codec;

template <class B, int kQuads = 2>
struct FormatCodec {
  using Block = B;
  static constexpr int kWeights = static_cast<int>(B::kWeights);
  static constexpr int kBytes = static_cast<int>(sizeof(B));

  static constexpr int kGroupQuads = kQuads;
  static constexpr int kGroups = kWeights / 16 / kGroupQuads;
  static constexpr int quad_at(int g, int i) { return kGroupQuads * g + i; }

  /// Codes are unsigned, at most kMaxCode; q = code - kOffset. With kSigned they are signed bytes,
  /// which quads() passes through signed_codes().
  static constexpr bool kSigned = false;
  static constexpr int kOffset = 0;

  /// Sub-blocks with an integer scale; 0: the block has one scale only.
  static constexpr int kSubs = [] {
    if constexpr (llm::HasSubBlocks<B>) return static_cast<int>(B::kWeights / B::kSubBlock);
    return 0;
  }();
  /// Whether min() is added (kSubs = 0) or subtracted.
  static constexpr bool kMin = requires { B::m; }
  || requires { B::dmin; };

  template <class A>
  static LLM_INLINE F32x16<A> scale(const std::byte* block) {
    if constexpr (std::is_same_v<decltype(B::d), float>) {
      return float_at<A, B, offsetof(B, d)>(block);
    } else if constexpr (std::is_same_v<decltype(B::d), std::uint8_t>) {
      return e8m0_half_at<A, B, offsetof(B, d)>(block);
    } else {
      return half_at<A, B, offsetof(B, d)>(block);
    }
  }
  template <class A>
  static LLM_INLINE F32x16<A> min(const std::byte* block) {
    if constexpr (requires { B::m; }) {
      return half_at<A, B, offsetof(B, m)>(block);
    } else {
      return half_at<A, B, offsetof(B, dmin)>(block);
    }
  }
};

/// Whether products on A take T's codes as signed bytes, without an offset.
template <class A, class T>
constexpr bool kTakesSigned = T::kSigned&& A::kSignedCodes;

/// What to subtract from the codes that quads() delivers.
template <class A, class T>
consteval int code_offset() {
  return kTakesSigned<A, T> ? 0 : T::kOffset;
}

/// Signed bytes as quads() delivers them: as they are, or w ^ 0x80 = w + 128 for dot products of
/// unsigned by signed bytes.
template <class A>
LLM_INLINE I32x16<A> signed_codes(const I32x16<A>& v) {
  if constexpr (A::kSignedCodes) {
    return v;
  } else {
    return v ^ broadcast_i32<A>(static_cast<std::int32_t>(0x80808080U));
  }
}

/// FormatCodec of signed bytes.
template <class B>
struct SignedCodec : FormatCodec<B> {
  static constexpr bool kSigned = true;
  static constexpr int kOffset = 128, kMaxCode = 255;
};

template <class A>
LLM_INLINE I32x16<A> low_nibbles(const I32x16<A>& v) {
  return v & broadcast_i32<A>(0x0F0F0F0F);
}
template <class A>
LLM_INLINE I32x16<A> high_nibbles(const I32x16<A>& v) {
  return low_nibbles(shift_right<4>(v));
}

}  // namespace
