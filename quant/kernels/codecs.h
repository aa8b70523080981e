#ifndef LLM_QUANT_KERNELS_CODECS_H_
#define LLM_QUANT_KERNELS_CODECS_H_

// How each packed block type becomes 8-bit code words and scales in 16 lanes. Part of an ISA unit.
//
// A codec delivers a block's codes as *quads*: 4 words of 4 codes, 16 consecutive k, one row a
// lane. quads(block, g) unpacks group g, up to 4 quads that share loads; quad_at(g, i) says which
// quad (k / 16) the i-th one is. Codes are unsigned; weight = code - kOffset. Formats:
// quant/formats/block_formats.h; the order of a packed block: quant/kernels/packed_matrix.cpp.

#include <cstddef>

#include "quant/kernels/simd/lane16.h"

namespace {

using namespace lane16;

template <class A>
using Quad = I32x16<A>[4];

using llm::contract::kPanelRows;

/// body.operator()<0>(), ... body.operator()<kCount - 1>(): a loop whose counter is a constant.
template <int kCount, int kFirst = 0, class Body>
LLM_INLINE void static_for(const Body& body) {
  if constexpr (kFirst < kCount) {
    body.template operator()<kFirst>();
    static_for<kCount, kFirst + 1>(body);
  }
}

/// Where the element begins that has `before` bytes of its row's block before it in packed order.
LLM_INLINE const std::byte* at(const std::byte* block, std::size_t before) {
  return block + kPanelRows * before;
}
/// Code word w of the run of words that has `before` bytes before it.
template <class A>
LLM_INLINE I32x16<A> word(const std::byte* block, std::size_t before, int w) {
  return load_i32<A>(at(block, before) + 64 * w);
}
template <class A>
LLM_INLINE I32x16<A> low_nibbles(const I32x16<A>& v) {
  return v & broadcast_i32<A>(0x0F0F0F0F);
}
template <class A>
LLM_INLINE I32x16<A> high_nibbles(const I32x16<A>& v) {
  return low_nibbles(shift_right<4>(v));
}
/// Bits [shift, shift + 2) of each byte, moved to bits [4, 6).
template <int kShift, class A>
LLM_INLINE I32x16<A> two_bits_at_4(const I32x16<A>& v) {
  if constexpr (kShift <= 4) {
    return shift_left<4 - kShift>(v) & broadcast_i32<A>(0x30303030);
  } else {
    return shift_right<kShift - 4>(v) & broadcast_i32<A>(0x30303030);
  }
}

// ---- one scale (and one minimum) a block
// ------------------------------------------------------------------

struct Q4_0 {
  static constexpr int kWeights = 32, kBytes = 18, kGroups = 1, kGroupQuads = 2;
  static constexpr int kOffset = 8, kMaxCode = 15;
  static constexpr bool kMin = false;
  static constexpr int quad_at(int, int i) { return i; }
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    for (int w = 0; w < 4; ++w) {
      const auto v = word<A>(block, 2, w);
      out[0][w] = low_nibbles(v);
      out[1][w] = high_nibbles(v);
    }
  }
};

struct Q4_1 {
  static constexpr int kWeights = 32, kBytes = 20, kGroups = 1, kGroupQuads = 2;
  static constexpr int kOffset = 0, kMaxCode = 15;
  static constexpr bool kMin = true;
  static constexpr int quad_at(int, int i) { return i; }
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    for (int w = 0; w < 4; ++w) {
      const auto v = word<A>(block, 4, w);
      out[0][w] = low_nibbles(v);
      out[1][w] = high_nibbles(v);
    }
  }
};

/// Bits [shift, shift + 4) of each lane as bit 4 of the lane's four bytes. The product puts bit i
/// at positions i + {0, 7, 14, 21}, which are all different, so bit i stands at bit 0 of byte i.
template <int kShift, class A>
LLM_INLINE I32x16<A> spread_bits_at_4(const I32x16<A>& v) {
  const auto four = shift_right<kShift>(v) & broadcast_i32<A>(15);
  return shift_left<4>((four * broadcast_i32<A>(0x00204081)) & broadcast_i32<A>(0x01010101));
}

template <class A, int kHigh, int kLow>
LLM_INLINE void quads_5bit(const std::byte* block, Quad<A>* out) {
  const auto high = word<A>(block, kHigh, 0);
  const auto one = [&]<int w>() {
    const auto v = word<A>(block, kLow, w);
    out[0][w] = low_nibbles(v) | spread_bits_at_4<4 * w>(high);
    out[1][w] = high_nibbles(v) | spread_bits_at_4<16 + 4 * w>(high);
  };
  one.template operator()<0>();
  one.template operator()<1>();
  one.template operator()<2>();
  one.template operator()<3>();
}

struct Q5_0 {
  static constexpr int kWeights = 32, kBytes = 22, kGroups = 1, kGroupQuads = 2;
  static constexpr int kOffset = 16, kMaxCode = 31;
  static constexpr bool kMin = false;
  static constexpr int quad_at(int, int i) { return i; }
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    quads_5bit<A, 2, 6>(block, out);
  }
};

struct Q5_1 {
  static constexpr int kWeights = 32, kBytes = 24, kGroups = 1, kGroupQuads = 2;
  static constexpr int kOffset = 0, kMaxCode = 31;
  static constexpr bool kMin = true;
  static constexpr int quad_at(int, int i) { return i; }
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    quads_5bit<A, 4, 8>(block, out);
  }
};

// Signed bytes. As unsigned codes (w ^ 0x80 = w + 128) for dot products of unsigned by signed
// bytes; architectures without one read them as they are (A::kSignedCodes), with no offset.
template <class A>
LLM_INLINE I32x16<A> signed_codes(const I32x16<A>& v) {
  if constexpr (A::kSignedCodes) {
    return v;
  } else {
    return v ^ broadcast_i32<A>(static_cast<std::int32_t>(0x80808080U));
  }
}

struct Q8_0 {
  static constexpr int kWeights = 32, kBytes = 34, kGroups = 1, kGroupQuads = 2;
  static constexpr int kOffset = 128, kMaxCode = 255;
  static constexpr bool kMin = false;
  static constexpr int quad_at(int, int i) { return i; }
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    for (int w = 0; w < 8; ++w) out[w / 4][w % 4] = signed_codes(word<A>(block, 2, w));
  }
};

struct Q8_K {
  static constexpr int kWeights = 256, kBytes = 292, kGroups = 8, kGroupQuads = 2;
  static constexpr int kOffset = 128, kMaxCode = 255;
  static constexpr bool kMin = false;
  static constexpr int quad_at(int g, int i) { return 2 * g + i; }
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    for (int w = 0; w < 8; ++w) out[w / 4][w % 4] = signed_codes(word<A>(block, 4, 8 * g + w));
  }
};

/// d and m of a block with one scale, in lanes.
template <class A, class T>
LLM_INLINE F32x16<A> block_scale(const std::byte* block) {
  if constexpr (T::kBytes == Q8_K::kBytes) {
    return load_f32<A>(reinterpret_cast<const float*>(block));
  } else {
    return from_half<A>(block);
  }
}
template <class A>
LLM_INLINE F32x16<A> block_min(const std::byte* block) {
  return from_half<A>(at(block, 2));
}

// ---- K-quants: integer scales a sub-block
// ------------------------------------------------------------------

/// Integer scales and, for types with one, minima of a super-block, a sub-block a row, in int32
/// lanes.
template <class A, int kSubs>
struct SubScales {
  I32x16<A> scale[kSubs];
  I32x16<A> min[kSubs];
};

// 6-bit scales and minima of Q4_K and Q5_K. A word below is one scale byte of each row, widened.
template <class A>
LLM_INLINE void scales_6bit(const std::byte* block, SubScales<A, 8>& out) {
  const auto byte = [&](int i) { return widen_u8<A>(at(block, 4 + i)); };
  const auto low6 = broadcast_i32<A>(63);
  const auto low4 = broadcast_i32<A>(15);
  for (int j = 0; j < 4; ++j) {
    const auto a = byte(j), b = byte(j + 4), c = byte(j + 8);
    out.scale[j] = a & low6;
    out.min[j] = b & low6;
    out.scale[j + 4] = (c & low4) | shift_left<4>(shift_right<6>(a));
    out.min[j + 4] = shift_right<4>(c) | shift_left<4>(shift_right<6>(b));
  }
}

struct Q4_K {
  static constexpr int kWeights = 256, kBytes = 144, kGroups = 4, kGroupQuads = 4;
  static constexpr int kSubs = 8, kOffset = 0, kMaxCode = 15;
  static constexpr bool kMin = true;
  static constexpr std::size_t kD = 0, kDMin = 2;
  static constexpr int quad_at(int g, int i) { return 4 * g + i; }
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    for (int w = 0; w < 8; ++w) {
      const auto v = word<A>(block, 16, 8 * g + w);
      out[w / 4][w % 4] = low_nibbles(v);
      out[2 + w / 4][w % 4] = high_nibbles(v);
    }
  }
  template <class A>
  static LLM_INLINE void scales(const std::byte* block, SubScales<A, 8>& out) {
    scales_6bit(block, out);
  }
};

struct Q5_K {
  static constexpr int kWeights = 256, kBytes = 176, kGroups = 8, kGroupQuads = 2;
  static constexpr int kSubs = 8, kOffset = 0, kMaxCode = 31;
  static constexpr bool kMin = true;
  static constexpr std::size_t kD = 0, kDMin = 2;
  // Group g = 4 * half + run: four words of a run of 64 weights, the first or second half of its
  // two 32s; their fifth bits are bits 2 * run and 2 * run + 1 of four words that all runs share.
  static constexpr int quad_at(int g, int i) { return 4 * (g % 4) + 2 * i + g / 4; }
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    constexpr int run = g % 4;
    constexpr std::size_t half = 16 + 80 * (g / 4);
    const auto bit4 = broadcast_i32<A>(0x10101010);
    for (int w = 0; w < 4; ++w) {
      const auto high = word<A>(block, half, w);
      const auto v = word<A>(block, half + 16 + 16 * run, w);
      const auto low_bit = run < 2 ? shift_left<(run < 2 ? 4 - 2 * run : 0)>(high)
                                   : shift_right<(run < 2 ? 0 : 2 * run - 4)>(high);
      const auto high_bit = run < 2 ? shift_left<(run < 2 ? 3 - 2 * run : 0)>(high)
                                    : shift_right<(run < 2 ? 0 : 2 * run - 3)>(high);
      out[0][w] = low_nibbles(v) | (low_bit & bit4);
      out[1][w] = high_nibbles(v) | (high_bit & bit4);
    }
  }
  template <class A>
  static LLM_INLINE void scales(const std::byte* block, SubScales<A, 8>& out) {
    scales_6bit(block, out);
  }
};

struct Q6_K {
  static constexpr int kWeights = 256, kBytes = 210, kGroups = 4, kGroupQuads = 4;
  static constexpr int kSubs = 16, kOffset = 32, kMaxCode = 63;
  static constexpr bool kMin = false;
  static constexpr std::size_t kD = 208;
  // Group g = 2 * half + h: the four quads 16 h .. 16 h + 15 of the half's 32-runs.
  static constexpr int quad_at(int g, int i) { return 8 * (g / 2) + 2 * i + g % 2; }
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    constexpr std::size_t group = 16 + 48 * g;
    for (int i = 0; i < 4; ++i) {
      const auto high = word<A>(block, group, i);
      const auto a = word<A>(block, group + 16, i);
      const auto b = word<A>(block, group + 32, i);
      out[0][i] = low_nibbles(a) | two_bits_at_4<0>(high);
      out[1][i] = low_nibbles(b) | two_bits_at_4<2>(high);
      out[2][i] = high_nibbles(a) | two_bits_at_4<4>(high);
      out[3][i] = high_nibbles(b) | two_bits_at_4<6>(high);
    }
  }
  template <class A>
  static LLM_INLINE void scales(const std::byte* block, SubScales<A, 16>& out) {
    for (std::size_t s = 0; s < 16; ++s) out.scale[s] = widen_s8<A>(at(block, s));
  }
};

// Q2_K and Q3_K share the layout of their two low bits: group g = 2 * half + h as in Q6_K, quad i =
// bits 2 i.
template <int kField, int g, class A>
LLM_INLINE void quads_2bit(const std::byte* block, Quad<A>* out) {
  const auto low2 = broadcast_i32<A>(0x03030303);
  for (int i = 0; i < 4; ++i) {
    const auto v = word<A>(block, kField, 8 * (g / 2) + 4 * (g % 2) + i);
    out[0][i] = v & low2;
    out[1][i] = shift_right<2>(v) & low2;
    out[2][i] = shift_right<4>(v) & low2;
    out[3][i] = shift_right<6>(v) & low2;
  }
}

struct Q2_K {
  static constexpr int kWeights = 256, kBytes = 84, kGroups = 4, kGroupQuads = 4;
  static constexpr int kSubs = 16, kOffset = 0, kMaxCode = 3;
  static constexpr bool kMin = true;
  static constexpr std::size_t kD = 80, kDMin = 82;
  static constexpr int quad_at(int g, int i) { return Q6_K::quad_at(g, i); }
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    quads_2bit<16, g>(block, out);
  }
  template <class A>
  static LLM_INLINE void scales(const std::byte* block, SubScales<A, 16>& out) {
    for (int s = 0; s < 16; ++s) {
      const auto v = widen_u8<A>(at(block, s));
      out.scale[s] = v & broadcast_i32<A>(15);
      out.min[s] = shift_right<4>(v);
    }
  }
};

struct Q3_K {
  static constexpr int kWeights = 256, kBytes = 110, kGroups = 4, kGroupQuads = 4;
  static constexpr int kSubs = 16, kOffset = 4, kMaxCode = 7;
  static constexpr bool kMin = false;
  static constexpr std::size_t kD = 108;
  static constexpr int quad_at(int g, int i) { return Q6_K::quad_at(g, i); }
  template <class A, int g>
  static LLM_INLINE void quads(const std::byte* block, Quad<A>* out) {
    quads_2bit<44, g>(block, out);
    const auto bit2 = broadcast_i32<A>(0x04040404);
    for (int i = 0; i < 4; ++i) {
      const auto high = shift_right<4 * (g / 2)>(word<A>(block, 12, 4 * (g % 2) + i));
      out[0][i] = out[0][i] | (shift_left<2>(high) & bit2);
      out[1][i] = out[1][i] | (shift_left<1>(high) & bit2);
      out[2][i] = out[2][i] | (high & bit2);
      out[3][i] = out[3][i] | (shift_right<1>(high) & bit2);
    }
  }
  template <class A>
  static LLM_INLINE void scales(const std::byte* block, SubScales<A, 16>& out) {
    const auto byte = [&](int i) { return widen_u8<A>(at(block, i)); };
    const auto bias = broadcast_i32<A>(32);
    for (int j = 0; j < 4; ++j) {
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

#endif  // LLM_QUANT_KERNELS_CODECS_H_
