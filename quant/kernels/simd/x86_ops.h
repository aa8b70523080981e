#pragma once

// 16 lanes on AVX2 (two registers) and AVX-512 (one), with and without VNNI. Part of an ISA unit.

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "quant/kernels/simd/xsimd_ops.h"

namespace {
namespace lane16 {

#if defined(__AVX2__)
struct Avx2Ops : XsimdOps<xsimd::fma3<xsimd::avx2>, 2> {
  static constexpr llm::Isa kIsa = llm::Isa::kAvx2;
  static constexpr bool kHasDot4 = false;
  static constexpr bool kSignedCodes = true;
  static constexpr int kTilePanels = 1;
  static constexpr int kTileTokens = 4;
  static LLM_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
  static LLM_INLINE F32 fma_negated(F32 a, F32 b, F32 c) { return _mm256_fnmadd_ps(a, b, c); }
  static LLM_INLINE I32 bits(F32 v) { return _mm256_castps_si256(v); }
  static LLM_INLINE F32 from_bits(I32 v) { return _mm256_castsi256_ps(v); }
  static LLM_INLINE I32 max_unsigned(I32 a, I32 b) { return _mm256_max_epu32(a, b); }
  static LLM_INLINE std::int32_t sum(I32 v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0b01'00'11'10));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0b10'11'00'01));
    return _mm_cvtsi128_si32(s);
  }
  static LLM_INLINE void to_bytes(std::int8_t* p, I32 v) {
    const __m256i low = _mm256_and_si256(v, _mm256_set1_epi32(0xFF));
    const __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
  }
  template <int N>
  static LLM_INLINE I32 shift_left(I32 v) {
    return _mm256_slli_epi32(v, N);
  }
  template <int N>
  static LLM_INLINE I32 shift_right(I32 v) {
    return _mm256_srli_epi32(v, N);
  }
  template <int N>
  static LLM_INLINE I32 shift_right_signed(I32 v) {
    return _mm256_srai_epi32(v, N);
  }
  static LLM_INLINE F32 from_half(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static LLM_INLINE void to_half(std::uint16_t* p, F32 v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static LLM_INLINE I32 widen_u8(const std::uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static LLM_INLINE I32 widen_s8(const std::uint8_t* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static LLM_INLINE I32 widen_u16(const std::uint16_t* p) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static LLM_INLINE I32 look_up(const std::int8_t* table, I32 v) {
    const __m128i entries = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), v);
  }
  static LLM_INLINE I32 dot2(I32 acc, I32 a, I32 b) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
  }
  static LLM_INLINE I32 maddubs(I32 u, I32 s) { return _mm256_maddubs_epi16(u, s); }
  static LLM_INLINE I32 madd(I32 a, I32 b) { return _mm256_madd_epi16(a, b); }
  static LLM_INLINE I32 add16(I32 a, I32 b) { return _mm256_add_epi16(a, b); }
  // |w| as unsigned bytes (128 for -128) and s with the sign of w: their product is w * s, and a
  // pair's sum is at most 2 * 128 * 127 < 2^15.
  static LLM_INLINE I32 magnitude(I32 w) { return _mm256_abs_epi8(w); }
  static LLM_INLINE I32 with_sign(I32 s, I32 w) { return _mm256_sign_epi8(s, w); }
};
#endif

#if defined(__AVXVNNI__)
struct AvxVnniOps : Avx2Ops {
  static constexpr llm::Isa kIsa = llm::Isa::kAvxVnni;
  static constexpr bool kHasDot4 = true;
  static constexpr bool kSignedCodes = false;
  static LLM_INLINE I32 dot4(I32 acc, I32 codes, I32 x) {
    return _mm256_dpbusd_avx_epi32(acc, codes, x);
  }
  static LLM_INLINE I32 dot2(I32 acc, I32 a, I32 b) { return _mm256_dpwssd_avx_epi32(acc, a, b); }
};
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__)
struct Avx512Ops : XsimdOps<xsimd::avx512f, 1> {
  static constexpr llm::Isa kIsa = llm::Isa::kAvx512;
  static constexpr bool kHasDot4 = false;
  static constexpr bool kSignedCodes = true;
  static constexpr int kTilePanels = 2;
  static constexpr int kTileTokens = 6;
  // xsimd 8.1 has no fma for AVX-512: its generic one rounds twice.
  static LLM_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
  static LLM_INLINE F32 fma_negated(F32 a, F32 b, F32 c) { return _mm512_fnmadd_ps(a, b, c); }
  static LLM_INLINE I32 bits(F32 v) { return _mm512_castps_si512(v); }
  static LLM_INLINE F32 from_bits(I32 v) { return _mm512_castsi512_ps(v); }
  static LLM_INLINE I32 max_unsigned(I32 a, I32 b) { return _mm512_max_epu32(a, b); }
  static LLM_INLINE std::int32_t sum(I32 v) { return _mm512_reduce_add_epi32(v); }
  static LLM_INLINE void to_bytes(std::int8_t* p, I32 v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
  }
  template <int N>
  static LLM_INLINE I32 shift_left(I32 v) {
    return _mm512_slli_epi32(v, N);
  }
  template <int N>
  static LLM_INLINE I32 shift_right(I32 v) {
    return _mm512_srli_epi32(v, N);
  }
  template <int N>
  static LLM_INLINE I32 shift_right_signed(I32 v) {
    return _mm512_srai_epi32(v, N);
  }
  static LLM_INLINE F32 from_half(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static LLM_INLINE void to_half(std::uint16_t* p, F32 v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static LLM_INLINE I32 widen_u8(const std::uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static LLM_INLINE I32 widen_s8(const std::uint8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static LLM_INLINE I32 widen_u16(const std::uint16_t* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static LLM_INLINE I32 look_up(const std::int8_t* table, I32 v) {
    const __m128i entries = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), v);
  }
  static LLM_INLINE I32 dot2(I32 acc, I32 a, I32 b) {
    return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
  }
  static LLM_INLINE I32 maddubs(I32 u, I32 s) { return _mm512_maddubs_epi16(u, s); }
  static LLM_INLINE I32 madd(I32 a, I32 b) { return _mm512_madd_epi16(a, b); }
  static LLM_INLINE I32 add16(I32 a, I32 b) { return _mm512_add_epi16(a, b); }
  static LLM_INLINE I32 magnitude(I32 w) { return _mm512_abs_epi8(w); }
  // Where w = 0 the product is 0 whatever the sign, so only the negative bytes matter.
  static LLM_INLINE I32 with_sign(I32 s, I32 w) {
    return _mm512_mask_sub_epi8(s, _mm512_movepi8_mask(w), _mm512_setzero_si512(), s);
  }
};
#endif

#if defined(__AVX512VNNI__)
struct Avx512VnniOps : Avx512Ops {
  static constexpr llm::Isa kIsa = llm::Isa::kAvx512Vnni;
  static constexpr bool kHasDot4 = true;
  static constexpr bool kSignedCodes = false;
  static LLM_INLINE I32 dot4(I32 acc, I32 codes, I32 x) {
    return _mm512_dpbusd_epi32(acc, codes, x);
  }
  static LLM_INLINE I32 dot2(I32 acc, I32 a, I32 b) { return _mm512_dpwssd_epi32(acc, a, b); }
};
#endif

}  // namespace lane16
}  // namespace
