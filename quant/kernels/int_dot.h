#pragma once

// Exact integer dot products of code words and activation words on every architecture. Part of an
// ISA unit.

#include "quant/kernels/codec.h"

namespace {

/// Sums products of T's codes by activations, then scales them, all exact.
///
/// With a 4-byte dot product the running sum is int32. Without one, pairs of products are added in
/// 16 bits (maddubs), which holds kRunWords of them: kRunWords * 2 * kMaxCode * 127 < 2^15, and of
/// signed codes one (2 * 128 * 127); the
/// step to int32 (madd) multiplies by the scale, given as a pair of equal halves.
template <class A, class T>
struct IntDot {
  static constexpr bool kSigned = kTakesSigned<A, T>;
  static constexpr int kMaxCode = T::kMaxCode;
  static constexpr int kRunWords = A::kHasDot4      ? 64
                                   : kSigned        ? 1
                                   : kMaxCode <= 15 ? 8
                                   : kMaxCode <= 31 ? 4
                                                    : 2;
  static_assert(!A::kHasDot4 || !A::kSignedCodes || kSigned || kMaxCode <= 127);
  static_assert(A::kHasDot4 || kSigned ||
                kRunWords * 2 * kMaxCode * llm::contract::kMaxActivationCode < 32768);

  static LLM_INLINE I32x16<A> step(const I32x16<A>& acc, const I32x16<A>& codes,
                                   const I32x16<A>& x) {
    I32x16<A> v;
    LLM_EACH_REGISTER {
      if constexpr (A::kHasDot4) {
        v.r[i] = A::dot4(acc.r[i], codes.r[i], x.r[i]);
      } else if constexpr (kSigned) {
        v.r[i] = A::add16(acc.r[i],
                          A::maddubs(A::magnitude(codes.r[i]), A::with_sign(x.r[i], codes.r[i])));
      } else {
        v.r[i] = A::add16(acc.r[i], A::maddubs(codes.r[i], x.r[i]));
      }
      if constexpr (!A::kHasDot4) A::keep_here(v.r[i]);
    }
    return v;
  }

  /// total + scale * (what acc holds).
  static LLM_INLINE I32x16<A> finish(const I32x16<A>& total, const I32x16<A>& acc,
                                     const I32x16<A>& scale) {
    if constexpr (A::kHasDot4) {
      return total + acc * scale;
    } else {
      I32x16<A> v;
      LLM_EACH_REGISTER v.r[i] = total.r[i] + A::madd(acc.r[i], scale.r[i]);
      return v;
    }
  }

  /// What acc starts with when finish(total, acc) ends the run: int32 goes on from the total.
  static LLM_INLINE I32x16<A> begin(const I32x16<A>& total) {
    if constexpr (A::kHasDot4) {
      return total;
    } else {
      return broadcast_i32<A>(0);
    }
  }

  /// The total with the run that began at begin(total).
  static LLM_INLINE I32x16<A> finish(const I32x16<A>& total, const I32x16<A>& acc) {
    if constexpr (A::kHasDot4) {
      return acc;
    } else {
      return finish(total, acc, broadcast_i32<A>(0x00010001));
    }
  }

  /// A scale in the form finish() takes.
  static LLM_INLINE I32x16<A> as_scale(const I32x16<A>& scale) {
    if constexpr (A::kHasDot4) {
      return scale;
    } else {
      return (scale & broadcast_i32<A>(0xFFFF)) | shift_left<16>(scale);
    }
  }
};

/// Two int32 lane vectors (each within 16 bits) as the halves of one.
template <class A>
LLM_INLINE I32x16<A> as_pair(const I32x16<A>& low, const I32x16<A>& high) {
  return (low & broadcast_i32<A>(0xFFFF)) | shift_left<16>(high);
}

/// acc + a.low * b.low + a.high * b.high.
template <class A>
LLM_INLINE I32x16<A> dot2(const I32x16<A>& acc, const I32x16<A>& a, const I32x16<A>& b) {
  I32x16<A> v;
  LLM_EACH_REGISTER v.r[i] = A::dot2(acc.r[i], a.r[i], b.r[i]);
  return v;
}

constexpr int log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }

}  // namespace
