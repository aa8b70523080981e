#pragma once

// 16 lanes on four registers of AArch64 with dot products. Part of an ISA unit.

#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>

#include <cstring>

#include "quant/kernels/simd/xsimd_ops.h"

namespace {
namespace lane16 {

struct NeonOps : XsimdOps<xsimd::neon64, 4> {
  static constexpr llm::Isa kIsa = llm::Isa::kNeon;
  static constexpr bool kHasDot4 = true;
  static constexpr bool kSignedCodes = true;
  static constexpr int kTilePanels = 1;
  static constexpr int kTileTokens = 4;
  // xsimd 8.1 divides by an estimate of the reciprocal.
  static LLM_INLINE F32 divide(F32 a, F32 b) { return vdivq_f32(a, b); }
  static LLM_INLINE F32 fma(F32 a, F32 b, F32 c) { return vfmaq_f32(c, a, b); }
  static LLM_INLINE F32 fma_negated(F32 a, F32 b, F32 c) { return vfmsq_f32(c, a, b); }
  static LLM_INLINE I32 bits(F32 v) { return vreinterpretq_s32_f32(v); }
  static LLM_INLINE F32 from_bits(I32 v) { return vreinterpretq_f32_s32(v); }
  static LLM_INLINE I32 max_unsigned(I32 a, I32 b) {
    return vreinterpretq_s32_u32(vmaxq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
  }
  static LLM_INLINE std::int32_t sum(I32 v) { return vaddvq_s32(v); }
  static LLM_INLINE void to_bytes(std::int8_t* p, I32 v) {
    const int16x4_t words = vmovn_s32(v);
    const int8x8_t bytes = vmovn_s16(vcombine_s16(words, words));
    const std::int32_t four = vget_lane_s32(vreinterpret_s32_s8(bytes), 0);
    std::memcpy(p, &four, sizeof(four));
  }
  // The instructions cannot shift right by 0.
  template <int N>
  static LLM_INLINE I32 shift_left(I32 v) {
    return vshlq_n_s32(v, N);
  }
  template <int N>
  static LLM_INLINE I32 shift_right(I32 v) {
    if constexpr (N == 0) {
      return v;
    } else {
      return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(v), N));
    }
  }
  template <int N>
  static LLM_INLINE I32 shift_right_signed(I32 v) {
    if constexpr (N == 0) {
      return v;
    } else {
      return vshrq_n_s32(v, N);
    }
  }
  static LLM_INLINE F32 from_half(const std::uint16_t* p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
  }
  static LLM_INLINE void to_half(std::uint16_t* p, F32 v) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
  }
  static LLM_INLINE I32 widen_u8(const std::uint8_t* p) {
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(four(p))))));
  }
  static LLM_INLINE I32 widen_s8(const std::uint8_t* p) {
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(four(p)))));
  }
  static LLM_INLINE I32 widen_u16(const std::uint16_t* p) {
    return vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p)));
  }
  static LLM_INLINE I32 look_up(const std::int8_t* table, I32 v) {
    return vreinterpretq_s32_s8(vqtbl1q_s8(vld1q_s8(table), vreinterpretq_u8_s32(v)));
  }
  static LLM_INLINE I32 dot4(I32 acc, I32 codes, I32 x) {
    return vdotq_s32(acc, vreinterpretq_s8_s32(codes), vreinterpretq_s8_s32(x));
  }
  static LLM_INLINE I32 dot2(I32 acc, I32 a, I32 b) {
    const int16x8_t u = vreinterpretq_s16_s32(a);
    const int16x8_t v = vreinterpretq_s16_s32(b);
    const int32x4_t low = vmull_s16(vget_low_s16(u), vget_low_s16(v));
    return vaddq_s32(acc, vpaddq_s32(low, vmull_high_s16(u, v)));
  }

 private:
  /// The four bytes at p, twice.
  static LLM_INLINE uint32x2_t four(const std::uint8_t* p) {
    std::uint32_t word;
    std::memcpy(&word, p, sizeof(word));
    return vdup_n_u32(word);
  }
};

}  // namespace lane16
}  // namespace
#endif
