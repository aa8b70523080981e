#pragma once

// Only ISA units (quant/kernels/kernels_*.cpp) include this. Each is built for its instruction set,
// so everything is in an anonymous namespace, and nothing that would be emitted as a shared
// function may be used.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/kernels/simd/neon_ops.h"
#include "quant/kernels/simd/x86_ops.h"
#include "quant/numerics/contract.h"

namespace {
namespace lane16 {

static_assert(llm::contract::kLanes == 16);

/// 16 virtual lanes: one zmm, two ymm, four q registers, or an array. Every operation works on each
/// lane by itself with the one rounding its name says, so equal input gives equal bits whatever the
/// register width.
///
/// `A` is an architecture: it names the xsimd batch type and supplies what xsimd has no operation
/// for.
template <class A>
struct F32x16 {
  typename A::F32 r[A::kRegisters];
};

/// 16 lanes of int32, or 64 bytes: lane l holds bytes 4l .. 4l+3.
template <class A>
struct I32x16 {
  typename A::I32 r[A::kRegisters];
};

#define LLM_EACH_REGISTER _Pragma("GCC unroll 4") for (int i = 0; i < A::kRegisters; ++i)

template <class A>
constexpr int kRegisterLanes = 16 / A::kRegisters;

template <class A>
LLM_INLINE F32x16<A> load_f32(const float* p) {
  F32x16<A> v;
  LLM_EACH_REGISTER v.r[i] = A::load(p + i * kRegisterLanes<A>);
  return v;
}

template <class A>
LLM_INLINE void store_f32(float* p, const F32x16<A>& v) {
  LLM_EACH_REGISTER A::store(p + i * kRegisterLanes<A>, v.r[i]);
}

/// 64 bytes from any address.
template <class A>
LLM_INLINE I32x16<A> load_i32(const void* p) {
  I32x16<A> v;
  LLM_EACH_REGISTER {
    v.r[i] = A::load(reinterpret_cast<const std::int32_t*>(static_cast<const std::byte*>(p) +
                                                           i * 4 * kRegisterLanes<A>));
  }
  return v;
}

template <class A>
LLM_INLINE void store_i32(void* p, const I32x16<A>& v) {
  LLM_EACH_REGISTER {
    A::store(
        reinterpret_cast<std::int32_t*>(static_cast<std::byte*>(p) + i * 4 * kRegisterLanes<A>),
        v.r[i]);
  }
}

template <class A>
LLM_INLINE F32x16<A> broadcast_f32(float x) {
  F32x16<A> v;
  LLM_EACH_REGISTER v.r[i] = A::broadcast(x);
  return v;
}

template <class A>
LLM_INLINE I32x16<A> broadcast_i32(std::int32_t x) {
  I32x16<A> v;
  LLM_EACH_REGISTER v.r[i] = A::broadcast(x);
  return v;
}

/// The 4 bytes at `p` in every lane.
template <class A>
LLM_INLINE I32x16<A> broadcast_word(const void* p) {
  std::int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return broadcast_i32<A>(word);
}

#define LLM_BINARY(type, name, expression)                      \
  template <class A>                                            \
  LLM_INLINE type<A> name(const type<A>& a, const type<A>& b) { \
    type<A> v;                                                  \
    LLM_EACH_REGISTER v.r[i] = (expression);                    \
    return v;                                                   \
  }
LLM_BINARY(F32x16, operator+, a.r[i] + b.r[i])
LLM_BINARY(F32x16, operator-, a.r[i] - b.r[i])
LLM_BINARY(F32x16, operator*, a.r[i] * b.r[i])
LLM_BINARY(F32x16, operator/, A::divide(a.r[i], b.r[i]))
LLM_BINARY(I32x16, operator+, a.r[i] + b.r[i])
LLM_BINARY(I32x16, operator-, a.r[i] - b.r[i])
LLM_BINARY(I32x16, operator*, a.r[i] * b.r[i])
LLM_BINARY(I32x16, operator&, a.r[i] & b.r[i])
LLM_BINARY(I32x16, operator|, a.r[i] | b.r[i])
LLM_BINARY(I32x16, operator^, a.r[i] ^ b.r[i])
LLM_BINARY(I32x16, max_unsigned, A::max_unsigned(a.r[i], b.r[i]))
/// a where a > b, else b: NaN in a gives b, NaN in b stays.
LLM_BINARY(F32x16, greater_of, A::select_greater(a.r[i], b.r[i], a.r[i], b.r[i]))
#undef LLM_BINARY

template <class A>
LLM_INLINE F32x16<A> fma(const F32x16<A>& a, const F32x16<A>& b, const F32x16<A>& c) {
  F32x16<A> v;
  LLM_EACH_REGISTER v.r[i] = A::fma(a.r[i], b.r[i], c.r[i]);
  return v;
}

/// fma(a, -b, c).
template <class A>
LLM_INLINE F32x16<A> fma_negated(const F32x16<A>& a, const F32x16<A>& b, const F32x16<A>& c) {
  F32x16<A> v;
  LLM_EACH_REGISTER v.r[i] = A::fma_negated(a.r[i], b.r[i], c.r[i]);
  return v;
}

/// `yes` in the lanes where a > b, `no` elsewhere.
template <class A>
LLM_INLINE F32x16<A> select_greater(const F32x16<A>& a, const F32x16<A>& b, const F32x16<A>& yes,
                                    const F32x16<A>& no) {
  F32x16<A> v;
  LLM_EACH_REGISTER v.r[i] = A::select_greater(a.r[i], b.r[i], yes.r[i], no.r[i]);
  return v;
}

#define LLM_CONVERT(to, from, name)             \
  template <class A>                            \
  LLM_INLINE to<A> name(const from<A>& x) {     \
    to<A> v;                                    \
    LLM_EACH_REGISTER v.r[i] = A::name(x.r[i]); \
    return v;                                   \
  }
LLM_CONVERT(F32x16, I32x16, to_float)
LLM_CONVERT(F32x16, I32x16, from_bits)
LLM_CONVERT(I32x16, F32x16, bits)
#undef LLM_CONVERT

#define LLM_SHIFT(name)                                     \
  template <int N, class A>                                 \
  LLM_INLINE I32x16<A> name(const I32x16<A>& x) {           \
    I32x16<A> v;                                            \
    LLM_EACH_REGISTER v.r[i] = A::template name<N>(x.r[i]); \
    return v;                                               \
  }
LLM_SHIFT(shift_left)
LLM_SHIFT(shift_right)
LLM_SHIFT(shift_right_signed)
#undef LLM_SHIFT

#define LLM_WIDEN(to, name, from)                                                                \
  template <class A>                                                                             \
  LLM_INLINE to<A> name(const void* p) {                                                         \
    to<A> v;                                                                                     \
    LLM_EACH_REGISTER { v.r[i] = A::name(static_cast<const from*>(p) + i * kRegisterLanes<A>); } \
    return v;                                                                                    \
  }
LLM_WIDEN(F32x16, from_half, std::uint16_t)
LLM_WIDEN(I32x16, widen_u8, std::uint8_t)
LLM_WIDEN(I32x16, widen_s8, std::uint8_t)
LLM_WIDEN(I32x16, widen_u16, std::uint16_t)
#undef LLM_WIDEN

template <class A>
LLM_INLINE void to_half(std::uint16_t* p, const F32x16<A>& v) {
  LLM_EACH_REGISTER A::to_half(p + i * kRegisterLanes<A>, v.r[i]);
}

/// Each byte of v, which must be below 16, becomes table[byte]. The table is 16-byte aligned.
template <class A>
LLM_INLINE I32x16<A> look_up(const std::int8_t* table, const I32x16<A>& v) {
  I32x16<A> bytes;
  LLM_EACH_REGISTER bytes.r[i] = A::look_up(table, v.r[i]);
  return bytes;
}

/// The low bytes of the lanes.
template <class A>
LLM_INLINE void to_bytes(std::int8_t* p, const I32x16<A>& v) {
  LLM_EACH_REGISTER A::to_bytes(p + i * kRegisterLanes<A>, v.r[i]);
}

/// The sum of the lanes; integer sums have no order.
template <class A>
LLM_INLINE std::int32_t lane_sum(const I32x16<A>& v) {
  std::int32_t sum = 0;
  LLM_EACH_REGISTER sum += A::sum(v.r[i]);
  return sum;
}

/// f over 16 lanes, pairwise: (l, l+8), (l, l+4), (l, l+2), (l, l+1).
/// @param lanes  float or an integer of 32 bits, aligned to 64 bytes
/// @param f  of two vectors of four lanes
template <class T, class F>
LLM_INLINE T fold_lanes(const T (&lanes)[16], F&& f) {
  typedef T Quarter [[gnu::vector_size(16)]];
  Quarter q[4];
  std::memcpy(q, lanes, sizeof(q));
  Quarter v = f(f(q[0], q[2]), f(q[1], q[3]));
  v = f(v, __builtin_shufflevector(v, v, 2, 3, 0, 1));
  v = f(v, __builtin_shufflevector(v, v, 1, 0, 3, 2));
  return v[0];
}

/// The contract's lane reduction.
template <class A>
LLM_INLINE float lane_sum(const F32x16<A>& v) {
  alignas(64) float lanes[16];
  store_f32(lanes, v);
  return fold_lanes(lanes, [](auto a, auto b) { return a + b; });
}

/// The largest of 16 numbers. Where some are NaN: one of the others, or NaN.
template <class A>
LLM_INLINE float lane_max(const F32x16<A>& v) {
  alignas(64) float lanes[16];
  store_f32(lanes, v);
  return fold_lanes(lanes, [](auto a, auto b) { return b > a ? b : a; });
}

/// The largest lane as an unsigned number.
template <class A>
LLM_INLINE std::uint32_t lane_max_unsigned(const I32x16<A>& v) {
  alignas(64) std::uint32_t lanes[16];
  store_i32(lanes, v);
  return fold_lanes(lanes, [](auto a, auto b) { return b > a ? b : a; });
}

}  // namespace lane16
}  // namespace
