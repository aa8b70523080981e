#pragma once

// What the architectures with vector registers share. Part of an ISA unit.

#include <xsimd/xsimd.hpp>

#include "quant/kernels/simd/scalar_ops.h"

namespace {
namespace lane16 {

/// What all xsimd architectures share.
template <class X, int Registers>
struct XsimdOps {
  static constexpr int kRegisters = Registers;
  using F32 = xsimd::batch<float, X>;
  using I32 = xsimd::batch<std::int32_t, X>;
  static LLM_INLINE F32 load(const float* p) { return F32::load_unaligned(p); }
  static LLM_INLINE I32 load(const std::int32_t* p) { return I32::load_unaligned(p); }
  static LLM_INLINE void store(float* p, F32 v) { v.store_unaligned(p); }
  static LLM_INLINE void store(std::int32_t* p, I32 v) { v.store_unaligned(p); }
  // No instruction: v is computed before what follows. Left alone, g++ 12 computes the products of
  // a whole tile first and adds them up afterwards, which spills nearly all of them.
  static LLM_INLINE void keep_here(I32& v) { asm volatile("" : "+v"(v.data)); }
  static LLM_INLINE F32 broadcast(float x) { return F32(x); }
  static LLM_INLINE I32 broadcast(std::int32_t x) { return I32(x); }
  static LLM_INLINE F32 divide(F32 a, F32 b) { return a / b; }
  static LLM_INLINE F32 to_float(I32 v) { return xsimd::to_float(v); }
  static LLM_INLINE F32 select_greater(F32 a, F32 b, F32 yes, F32 no) {
    return xsimd::select(a > b, yes, no);
  }
};

}  // namespace lane16
}  // namespace
