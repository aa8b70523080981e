#pragma once

// The product of one packed block and one token's activations, and what of it register tiles share:
// scales, the codes' offset, the step to the f32 accumulator. Part of an ISA unit.

#include "quant/kernels/int_dot.h"
#include "quant/kernels/kernel_table.h"

namespace {

/// The activation block that goes with a codec, of which a block of weights has kParts.
template <class T>
struct ActivationOf {
  using Block =
      std::conditional_t<T::kWeights == llm::KernelQ8K::kSize, llm::KernelQ8K, llm::KernelQ8x32>;
  static constexpr int kParts = T::kWeights / static_cast<int>(Block::kSize);
  static_assert(T::kWeights % Block::kSize == 0 && T::kGroups % kParts == 0);
};

/// Codecs whose sub-blocks have integer scales.
template <class T>
concept SubScaled = (T::kSubs > 0);

// ---- sub-blocks with scales

/// Whether the codes' offset is in the value that a sub-block's sum starts with. 16-bit sums have
/// no room for it, and activations hold that value for sub-blocks of 16 only: else it is subtracted
/// from the super-block's sum.
template <class A, class T>
constexpr bool kOffsetInStart = A::kHasDot4 && (code_offset<A, T>() != 0) && T::kSubs == 16;

/// The scales of one super-block and panel, ready for products: scale in finish()'s form; `pairs`
/// are multiplied with pairs of activation sums and give msum (types with a min) or the part of the
/// codes' offset.
template <class A, class T>
struct KScales {
  static constexpr bool kHasPairs = T::kMin || (code_offset<A, T>() != 0 && !kOffsetInStart<A, T>);
  static constexpr int kPairs = kHasPairs ? T::kSubs / 2 : 0;
  I32x16<A> scale[T::kSubs];
  I32x16<A> pairs[kPairs > 0 ? kPairs : 1];
  F32x16<A> d;
  F32x16<A> min;

  LLM_INLINE void read(const std::byte* block) {
    SubScales<A, T::kSubs> sub;
    T::scales(block, sub);
    _Pragma("GCC unroll 16") for (int s = 0; s < T::kSubs; ++s) {
      scale[s] = IntDot<A, T>::as_scale(sub.scale[s]);
    }
    _Pragma("GCC unroll 8") for (int p = 0; p < kPairs; ++p) {
      pairs[p] = T::kMin ? as_pair(sub.min[2 * p], sub.min[2 * p + 1])
                         : as_pair(sub.scale[2 * p], sub.scale[2 * p + 1]);
    }
    d = T::template scale<A>(block);
    if constexpr (T::kMin) min = T::template min<A>(block);
  }

  static LLM_INLINE const std::int16_t* sums(const llm::KernelQ8K& x) {
    if constexpr (T::kSubs == 8) {
      return x.sums32;
    } else {
      return x.sums16;
    }
  }

  /// Adds a super-block with integer sum `isum` (of unsigned codes) to the f32 accumulator.
  LLM_INLINE F32x16<A> accumulate(const F32x16<A>& acc, I32x16<A> isum,
                                  const llm::KernelQ8K& x) const {
    I32x16<A> psum = broadcast_i32<A>(0);
    _Pragma("GCC unroll 8") for (int p = 0; p < kPairs; ++p) {
      psum = dot2(psum, pairs[p], broadcast_word<A>(sums(x) + 2 * p));
    }
    if constexpr (!T::kMin && kPairs > 0) isum = isum - shift_left<log2_of(T::kOffset)>(psum);
    const auto dx = broadcast_f32<A>(x.d);
    auto sum = fma(to_float(isum), d * dx, acc);
    if constexpr (T::kMin) {
      // fma(psum, -(dmin * dx), sum): negating a factor is exact.
      sum = fma_negated(to_float(psum), min * dx, sum);
    }
    return sum;
  }
};

/// What the sum of sub-block `sub` starts with.
template <class A, class T>
LLM_INLINE I32x16<A> sub_start(const llm::KernelQ8K& x, int sub) {
  if constexpr (kOffsetInStart<A, T>) {
    const auto minus32 = broadcast_i32<A>(x.minus32[sub]);
    constexpr int kShift = log2_of(T::kOffset) - 5;
    if constexpr (kShift > 0) {
      return shift_left<kShift>(minus32);
    } else {
      return shift_right_signed<-kShift>(minus32);
    }
  } else {
    return broadcast_i32<A>(0);
  }
}

/// What direct_block() calls before each group where nothing is to be done.
struct Nothing {
  LLM_INLINE void operator()(int, int) const {}
};

/// One super-block of one panel by one token, codes taken straight from the packed block.
/// @param before  is called with g and their number before group g of the codes is read
template <class A, class T, class Before = Nothing>
LLM_INLINE F32x16<A> direct_block(const std::byte* block, const llm::KernelQ8K* activations,
                                  std::size_t, const F32x16<A>& acc,
                                  Before before = {}) requires(SubScaled<T>) {
  const llm::KernelQ8K& x = *activations;
  using Dot = IntDot<A, T>;
  constexpr int kRun = Dot::kRunWords < 4 ? Dot::kRunWords : 4;
  constexpr int kQuadsPerSub = 16 / T::kSubs;
  KScales<A, T> scales;
  scales.read(block);
  I32x16<A> isum = broadcast_i32<A>(0);
  static_for<T::kGroups>([&]<int g>() LLM_INLINE_LAMBDA {
    Quad<A> quads[T::kGroupQuads];
    T::template quads<A, g>(block, quads);
    _Pragma("GCC unroll 4") for (int q = 0; q < T::kGroupQuads; ++q) {
      const int at_quad = T::quad_at(g, q);
      before(g * T::kGroupQuads + q, T::kGroups * T::kGroupQuads);
      const std::int8_t* codes = x.qs + 16 * at_quad;
      for (int w = 0; w < 4; w += kRun) {
        I32x16<A> sum = sub_start<A, T>(x, at_quad / kQuadsPerSub);
        for (int i = w; i < w + kRun; ++i) {
          sum = Dot::step(sum, quads[q][i], broadcast_word<A>(codes + 4 * i));
        }
        const int sub = at_quad / kQuadsPerSub;
        if constexpr (requires { T::template scale_of<A>(block, 0); }) {
          isum = Dot::finish(isum, sum, Dot::as_scale(T::template scale_of<A>(block, sub)));
        } else {
          isum = Dot::finish(isum, sum, scales.scale[sub]);
        }
      }
    }
  });
  return scales.accumulate(acc, isum, x);
}

// ---- one scale per block

/// isum's start: the part of the codes' offset.
template <class A, class T, class X>
LLM_INLINE I32x16<A> offset_start(const X& x) {
  constexpr int kOffset = code_offset<A, T>();
  if constexpr (kOffset == 0) {
    return broadcast_i32<A>(0);
  } else {
    return broadcast_i32<A>(-kOffset * x.sum);
  }
}

template <class A, class T, class X>
LLM_INLINE F32x16<A> accumulate_simple(const F32x16<A>& acc, const I32x16<A>& isum,
                                       const F32x16<A>& d, const F32x16<A>& m, const X& x) {
  const auto dx = broadcast_f32<A>(x.d);
  auto sum = fma(to_float(isum), d * dx, acc);
  if constexpr (T::kMin) {
    sum = fma(broadcast_f32<A>(static_cast<float>(x.sum)), m * dx, sum);
  }
  return sum;
}

/// The parts of x are x_stride elements apart.
template <class A, class T, class Before = Nothing>
LLM_INLINE F32x16<A> direct_block(const std::byte* block, const typename ActivationOf<T>::Block* x,
                                  std::size_t x_stride, const F32x16<A>& acc,
                                  Before before = {}) requires(!SubScaled<T>) {
  using Dot = IntDot<A, T>;
  constexpr int kRun = Dot::kRunWords < 4 ? Dot::kRunWords : 4;
  constexpr int kPartGroups = T::kGroups / ActivationOf<T>::kParts;
  const auto d = T::template scale<A>(block);
  F32x16<A> m = broadcast_f32<A>(0);
  if constexpr (T::kMin) m = T::template min<A>(block);
  F32x16<A> sum_of_parts = acc;
  I32x16<A> isum;
  static_for<T::kGroups>([&]<int g>() LLM_INLINE_LAMBDA {
    constexpr int kPart = g / kPartGroups;
    const auto& part = x[kPart * x_stride];
    if constexpr (g % kPartGroups == 0) isum = offset_start<A, T>(part);
    Quad<A> quads[T::kGroupQuads];
    before(g, T::kGroups);
    T::template quads<A, g>(block, quads);
    _Pragma("GCC unroll 4") for (int q = 0; q < T::kGroupQuads; ++q) {
      const std::int8_t* codes =
          part.qs + 16 * (T::quad_at(g, q) - kPart * kPartGroups * T::kGroupQuads);
      for (int w = 0; w < 4; w += kRun) {
        I32x16<A> sum = Dot::begin(isum);
        for (int i = w; i < w + kRun; ++i) {
          sum = Dot::step(sum, quads[q][i], broadcast_word<A>(codes + 4 * i));
        }
        isum = Dot::finish(isum, sum);
      }
    }
    if constexpr ((g + 1) % kPartGroups == 0)
      sum_of_parts = accumulate_simple<A, T>(sum_of_parts, isum, d, m, part);
  });
  return sum_of_parts;
}

}  // namespace
