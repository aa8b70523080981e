#pragma once

// What an architecture is to lane16.h: its instruction set, the register type, how many registers
// are 16 lanes, the tile that its registers hold, and the operations that xsimd has not. Here for
// the baseline; x86_ops.h and neon_ops.h have the others. Part of an ISA unit.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/cpu_features.h"
#include "quant/formats/half.h"

#define LLM_INLINE inline __attribute__((always_inline))
#define LLM_INLINE_LAMBDA __attribute__((always_inline))

namespace {
namespace lane16 {

/// 16 one-lane registers: the definition in the terms of this file.
struct ScalarOps {
  static constexpr llm::Isa kIsa = llm::Isa::kScalar;
  static constexpr int kRegisters = 16;
  static constexpr bool kHasDot4 = true;       ///< dot4 exists; else maddubs and madd
  static constexpr bool kSignedCodes = false;  ///< products take signed codes as they are
  static constexpr int kTilePanels = 1;        ///< register tile of a batch: panels x tokens
  static constexpr int kTileTokens = 2;
  using F32 = float;
  using I32 = std::int32_t;
  static LLM_INLINE F32 load(const float* p) { return *p; }
  static LLM_INLINE I32 load(const std::int32_t* p) { return *p; }
  static LLM_INLINE void store(float* p, F32 v) { *p = v; }
  static LLM_INLINE void store(std::int32_t* p, I32 v) { *p = v; }
  static LLM_INLINE F32 broadcast(float x) { return x; }
  static LLM_INLINE I32 broadcast(std::int32_t x) { return x; }
  static LLM_INLINE F32 divide(F32 a, F32 b) { return a / b; }
  static LLM_INLINE F32 fma(F32 a, F32 b, F32 c) { return std::fma(a, b, c); }
  static LLM_INLINE F32 fma_negated(F32 a, F32 b, F32 c) { return std::fma(a, -b, c); }
  static LLM_INLINE F32 to_float(I32 v) { return static_cast<float>(v); }
  static LLM_INLINE F32 select_greater(F32 a, F32 b, F32 yes, F32 no) { return a > b ? yes : no; }
  static LLM_INLINE I32 bits(F32 v) { return __builtin_bit_cast(I32, v); }
  static LLM_INLINE F32 from_bits(I32 v) { return __builtin_bit_cast(F32, v); }
  static LLM_INLINE I32 max_unsigned(I32 a, I32 b) {
    return static_cast<std::uint32_t>(a) > static_cast<std::uint32_t>(b) ? a : b;
  }
  static LLM_INLINE std::int32_t sum(I32 v) { return v; }
  // The low byte of each lane.
  static LLM_INLINE void to_bytes(std::int8_t* p, I32 v) { *p = static_cast<std::int8_t>(v); }
  template <int N>
  static LLM_INLINE I32 shift_left(I32 v) {
    return static_cast<I32>(static_cast<std::uint32_t>(v) << N);
  }
  template <int N>
  static LLM_INLINE I32 shift_right(I32 v) {
    return static_cast<I32>(static_cast<std::uint32_t>(v) >> N);
  }
  template <int N>
  static LLM_INLINE I32 shift_right_signed(I32 v) {
    return v >> N;
  }
  static LLM_INLINE F32 from_half(const std::uint16_t* p) { return llm::f16_to_f32(*p); }
  static LLM_INLINE void to_half(std::uint16_t* p, F32 v) { *p = llm::f32_to_f16(v); }
  static LLM_INLINE I32 widen_u8(const std::uint8_t* p) { return *p; }
  static LLM_INLINE I32 widen_s8(const std::uint8_t* p) { return static_cast<std::int8_t>(*p); }
  static LLM_INLINE I32 widen_u16(const std::uint16_t* p) { return *p; }
  // Byte i becomes table[byte i], for bytes below 16.
  static LLM_INLINE I32 look_up(const std::int8_t* table, I32 v) {
    std::uint32_t bytes = 0;
    for (int i = 0; i < 4; ++i) {
      const auto byte =
          static_cast<std::uint8_t>(table[static_cast<std::uint32_t>(v) >> (8 * i) & 15U]);
      bytes |= std::uint32_t{byte} << (8 * i);
    }
    return static_cast<I32>(bytes);
  }
  // The sum of four products of bytes: codes unsigned (signed with kSignedCodes), x signed.
  static LLM_INLINE I32 dot4(I32 acc, I32 codes, I32 x) {
    for (int i = 0; i < 4; ++i) {
      const auto a =
          static_cast<std::int32_t>((static_cast<std::uint32_t>(codes) >> (8 * i)) & 255U);
      const auto b = static_cast<std::int8_t>(static_cast<std::uint32_t>(x) >> (8 * i));
      acc += a * b;
    }
    return acc;
  }
  // The sum of two products of signed 16-bit halves.
  static LLM_INLINE I32 dot2(I32 acc, I32 a, I32 b) {
    for (int i = 0; i < 2; ++i) {
      acc += static_cast<std::int16_t>(static_cast<std::uint32_t>(a) >> (16 * i)) *
             static_cast<std::int16_t>(static_cast<std::uint32_t>(b) >> (16 * i));
    }
    return acc;
  }
};

}  // namespace lane16
}  // namespace
