#pragma once

// Products of K-quants with a batch of tokens by the tiles of AMX: 16 tokens by 16 rows, 64 codes
// at a time. Part of an ISA unit.
//
// Codes unpacked as [word][16 rows][4] are a tile operand as they lie. A tile's sum runs over the
// super-block and cannot apply the scales of sub-blocks, so they are multiplied into the codes
// before. A scale is written in digits, scale_s = sum over i of radix^i digit_i(s), so small that
// code * digit fits a byte. Then
//
//   isum = sum over s of scale_s (sum over k in s of q_k x_k)
//        = sum over i of radix^i (sum over k of (q_k digit_i(s(k))) x_k)
//
// is a tile product over all 256 weights for each digit. All of it is exact: a digit's sum is at
// most 256 * 255 * 127 < 2^23, and isum is the contract's.
//
// Blocks with one scale are left to VNNI: a tile of 32 codes is stored and scaled too often to
// gain.

#include "quant/kernels/matmul_float_kernel.h"
#include "quant/kernels/simd/amx_tiles.h"

namespace {

/// Scales of 4 bits as they are.
struct WholeScales {
  static constexpr int kDigits = 1, kLeast = 0, kGreatest = 15;
  template <class A>
  static LLM_INLINE void split(const I32x16<A>& scale, I32x16<A> (&digits)[kDigits]) {
    digits[0] = scale;
  }
  template <class A>
  static LLM_INLINE I32x16<A> join(const I32x16<A> (&sums)[kDigits]) {
    return sums[0];
  }
};

/// Scales of 6 bits, two digits to base 8: 0 .. 63 for kLowest = 0, -32 .. 31 for -4.
template <int kLowest>
struct OctalScales {
  static constexpr int kDigits = 2, kLeast = kLowest, kGreatest = 7;
  template <class A>
  static LLM_INLINE void split(const I32x16<A>& scale, I32x16<A> (&digits)[kDigits]) {
    digits[0] = scale & broadcast_i32<A>(7);
    digits[1] = shift_right_signed<3>(scale);
  }
  template <class A>
  static LLM_INLINE I32x16<A> join(const I32x16<A> (&sums)[kDigits]) {
    return sums[0] + shift_left<3>(sums[1]);
  }
};

/// Signed scales of 8 bits, three digits -3 .. 3 to base 7, which reach 3 + 21 + 147 = 171.
struct SeptenaryScales {
  static constexpr int kDigits = 3, kLeast = -3, kGreatest = 3;
  static constexpr std::int32_t kReciprocal = 9363;  // 2^16 / 7, rounded up
  static_assert([] {
    for (std::int32_t n = 0; n <= 127 + 171; ++n) {
      if ((n * kReciprocal) >> 16 != n / 7) return false;
    }
    return true;
  }());
  template <class A>
  static LLM_INLINE void split(const I32x16<A>& scale, I32x16<A> (&digits)[kDigits]) {
    // Digits of scale + 171, which is positive, are 0 .. 6.
    auto rest = scale + broadcast_i32<A>(171);
    for (auto& digit : digits) {
      const auto above = shift_right<16>(rest * broadcast_i32<A>(kReciprocal));
      digit = rest - seven(above) - broadcast_i32<A>(3);
      rest = above;
    }
  }
  template <class A>
  static LLM_INLINE I32x16<A> join(const I32x16<A> (&sums)[kDigits]) {
    return seven(seven(sums[2]) + sums[1]) + sums[0];
  }

 private:
  template <class A>
  static LLM_INLINE I32x16<A> seven(const I32x16<A>& v) {
    return shift_left<3>(v) - v;
  }
};

/// How a type's scales are written; void: its products are not by tiles. The codes of IQ4_XS are
/// whole signed bytes, which leave no room for a digit.
template <class T>
struct DigitsOf {
  using Type = void;
};
template <>
struct DigitsOf<Codec<llm::BlockQ2_K>> {
  using Type = WholeScales;
};
template <>
struct DigitsOf<Codec<llm::BlockQ3_K>> {
  using Type = OctalScales<-4>;
};
template <>
struct DigitsOf<Codec<llm::BlockQ4_K>> {
  using Type = OctalScales<0>;
};
template <>
struct DigitsOf<Codec<llm::BlockQ5_K>> {
  using Type = OctalScales<0>;
};
template <>
struct DigitsOf<Codec<llm::BlockQ6_K>> {
  using Type = SeptenaryScales;
};

/// Whether code * digit is a signed byte; if not, it is an unsigned one.
template <class T, class Digits>
consteval bool products_are_signed() {
  constexpr int kLeastCode = -T::kOffset;
  constexpr int kGreatestCode = T::kMaxCode - T::kOffset;
  int least = 0;
  int greatest = 0;
  for (const int code : {kLeastCode, kGreatestCode}) {
    for (const int digit : {Digits::kLeast, Digits::kGreatest}) {
      least = code * digit < least ? code * digit : least;
      greatest = code * digit > greatest ? code * digit : greatest;
    }
  }
  const bool is_signed = least >= -128 && greatest <= 127;
  if (!is_signed && (least < 0 || greatest > 255)) throw "no byte holds the products";
  return is_signed;
}

/// Each byte of v times its row's digit, given as two equal halves, modulo 256.
LLM_INLINE __m512i times_digit(__m512i v, __m512i digit) {
  const __m512i even = _mm512_mullo_epi16(v, digit);
  const __m512i odd = _mm512_slli_epi16(_mm512_mullo_epi16(_mm512_srli_epi16(v, 8), digit), 8);
  return _mm512_mask_mov_epi8(even, 0xAAAA'AAAA'AAAA'AAAAU, odd);
}

/// One super-block of kPanels panels, for matmul_batch: codes (without their offset) times each
/// digit of their scale, as [panel][digit][word][16 rows][4].
template <class A, class T, int kPanels>
struct FoldedTiles {
  using Digits = typename DigitsOf<T>::Type;
  static constexpr int kBlocks = 1;
  static constexpr int kSums = kPanels * Digits::kDigits;
  static constexpr int kWords = T::kWeights / 4;
  static constexpr bool kSigned = products_are_signed<T, Digits>();
  static_assert(kSums <= kSumTiles);
  // accumulate() is to leave the offset alone.
  static_assert(T::kOffset == 0 || kOffsetInStart<A, T>);

  alignas(64) std::byte codes[kPanels][Digits::kDigits][kWords][kTileRowBytes];
  KScales<A, T> scales[kPanels];

  LLM_INLINE void read(const std::byte* block, int, int panel) {
    scales[panel].read(block);
    I32x16<A> digits[T::kSubs][Digits::kDigits];
    for (int s = 0; s < T::kSubs; ++s) {
      Digits::split(scales[panel].scale[s], digits[s]);
      for (auto& digit : digits[s]) digit = as_pair(digit, digit);
    }
    static_for<T::kGroups>([&]<int g>() LLM_INLINE_LAMBDA {
      Quad<A> quads[T::kGroupQuads];
      T::template quads<A, g>(block, quads);
      for (int q = 0; q < T::kGroupQuads; ++q) {
        const int quad = T::quad_at(g, q);
        for (int i = 0; i < 4; ++i) {
          __m512i word = quads[q][i].r[0];
          if constexpr (T::kOffset != 0) {
            word = _mm512_sub_epi8(word, _mm512_set1_epi8(T::kOffset));
          }
          for (int d = 0; d < Digits::kDigits; ++d) {
            const auto& digit = digits[quad * T::kSubs / 16][d];
            _mm512_store_si512(codes[panel][d][4 * quad + i], times_digit(word, digit.r[0]));
          }
        }
      }
    });
  }
};

/// All tokens of a batch by tiles of 16. The last tile may take tokens of the one before once more;
/// they are not added again.
/// @pre n_tokens >= kTileRows
template <class A, class T, int P, class Done>
LLM_INLINE void all_tokens(const FoldedTiles<A, T, P>& f, int, const llm::KernelQ8K* x,
                           std::size_t n_tokens, float* acc, Done&& done) {
  using U = FoldedTiles<A, T, P>;
  using Digits = typename U::Digits;
  alignas(64) std::int32_t sums[U::kSums][kTileRows][16];
  for (std::size_t t = 0; t < n_tokens; t += kTileRows) {
    const std::size_t first = t + kTileRows <= n_tokens ? t : n_tokens - kTileRows;
    static_for<U::kSums>([&]<int s>() LLM_INLINE_LAMBDA { zero_tile<s>(); });
    for (int w = 0; w < U::kWords; w += 16) {
      load_tile<kTokenTile>(x[first].qs + 4 * w, sizeof(*x));
      static_for<U::kSums>([&]<int s>() LLM_INLINE_LAMBDA {
        load_tile<kCodeTile>(f.codes[s / Digits::kDigits][s % Digits::kDigits][w], kTileRowBytes);
        multiply_tiles<U::kSigned, s>();
      });
    }
    static_for<U::kSums>([&]<int s>() LLM_INLINE_LAMBDA { store_tile<s>(sums[s]); });
    for (std::size_t n = t; n < first + kTileRows; ++n) {
      for (int p = 0; p < P; ++p) {
        I32x16<A> of_digits[Digits::kDigits];
        for (int d = 0; d < Digits::kDigits; ++d) {
          of_digits[d] = load_i32<A>(sums[p * Digits::kDigits + d][n - first]);
        }
        float* out = acc + (n * P + static_cast<std::size_t>(p)) * 16;
        store_f32(out, f.scales[p].accumulate(load_f32<A>(out), Digits::join(of_digits), x[n]));
      }
    }
    done(t, first + kTileRows);
  }
}

// ---- driver

template <class Block>
constexpr bool kHasTiles = !std::is_void_v<typename DigitsOf<Codec<Block>>::Type>;

/// Whether these products are by tiles.
LLM_INLINE bool has_tiles(const llm::MatmulArgs& args) {
  if (args.dequantize || args.n_tokens < kTileRows) return false;
  return llm::visit_block_format(args.type, []<class Block>() { return kHasTiles<Block>; });
}

/// @pre has_tiles(args)
template <class A>
void matmul_by_tiles(const llm::MatmulArgs& args) {
  const TileRegisters registers;
  llm::visit_block_format(args.type, [&]<class Block>() {
    if constexpr (kHasTiles<Block>) matmul_batches<A, Codec<Block>, FoldedTiles>(args);
  });
}

}  // namespace
