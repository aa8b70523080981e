#pragma once

// The body of an ISA unit: peak_<isa>.cpp includes this, built with that instruction set's flags,
// and exports one table; everything else is in an anonymous namespace.

#include <utility>

#include "bench/peak_kernels.h"
#include "quant/kernels/simd/lane16.h"

namespace {

using namespace lane16;

constexpr int kCode = 15;
constexpr int kActivation = 127;

/// v, of which the compiler must think that it is a new value; costs no instruction. Without it
/// equal sums would be computed once. By value: an element of an array would go to memory.
LLM_INLINE std::int32_t renewed(std::int32_t v) {
  asm volatile("" : "+r"(v));
  return v;
}
#if defined(__AVX2__)
#define LLM_VECTOR_REGISTER "+v"
#elif defined(__ARM_FEATURE_DOTPROD)
#define LLM_VECTOR_REGISTER "+w"
#endif
#if defined(LLM_VECTOR_REGISTER)
template <class X>
LLM_INLINE xsimd::batch<std::int32_t, X> renewed(xsimd::batch<std::int32_t, X> v) {
  asm volatile("" : LLM_VECTOR_REGISTER(v.data));
  return v;
}
#endif

template <class A>
std::uint32_t lane_total(const typename A::I32& v) {
  constexpr int kLanes = 16 / A::kRegisters;
  std::int32_t lanes[kLanes];
  A::store(lanes, v);
  std::uint32_t total = 0;
  for (const std::int32_t lane : lanes) total += static_cast<std::uint32_t>(lane);
  return total;
}

template <class A, int kStreams>
std::uint32_t read_streams(const std::byte* memory, std::size_t n_bytes) {
  const std::size_t stride = n_bytes / kStreams;
  I32x16<A> sums[kStreams];
  for (auto& sum : sums) sum = broadcast_i32<A>(0);
  for (std::size_t at = 0; at < stride; at += 256) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
#pragma GCC unroll 4
      for (int line = 0; line < 4; ++line) {
        sums[s] = sums[s] + load_i32<A>(memory + static_cast<std::size_t>(s) * stride + at +
                                        static_cast<std::size_t>(line) * 64);
      }
    }
  }
  std::uint32_t total = 0;
  for (const auto& sum : sums) {
    for (int i = 0; i < A::kRegisters; ++i) total += lane_total<A>(sum.r[i]);
  }
  return total;
}

template <class A>
std::uint32_t read_memory(const std::byte* memory, std::size_t n_bytes, int n_streams) {
  switch (n_streams) {
    case 1:
      return read_streams<A, 1>(memory, n_bytes);
    case 2:
      return read_streams<A, 2>(memory, n_bytes);
    default:
      return read_streams<A, 4>(memory, n_bytes);
  }
}

/// Accumulators, each one register. A dpbusd takes 4 to 5 cycles and two can start in each, so 12
/// never wait; the chain without VNNI is one add.
template <class A>
constexpr int kChains = A::kHasDot4 ? 12 : 4;

/// One product for each accumulator.
template <class A, std::size_t... Chain>
LLM_INLINE void dot_round(typename A::I32 (&sums)[sizeof...(Chain)], typename A::I32& codes,
                          typename A::I32& x, std::index_sequence<Chain...>) {
  if constexpr (A::kHasDot4) {
    ((sums[Chain] = renewed(A::dot4(sums[Chain], codes, x))), ...);
  } else {
    const typename A::I32 ones = A::broadcast(0x00010001);
    typename A::I32 pairs[] = {(static_cast<void>(Chain), A::maddubs(codes, x = renewed(x)))...};
    const auto add_word = [&]() LLM_INLINE_LAMBDA {
      ((pairs[Chain] = renewed(A::add16(pairs[Chain], A::maddubs(codes, x = renewed(x))))), ...);
    };
    add_word();
    add_word();
    add_word();
    add_word();
    add_word();
    add_word();
    add_word();
    ((sums[Chain] = sums[Chain] + A::madd(pairs[Chain], ones)), ...);
  }
}

template <class A>
llm::DotRun dot_rounds(std::uint64_t rounds) {
  static_assert(8 * 2 * kCode * kActivation < 32768);  // eight words in 16 bits
  constexpr std::uint64_t kWordsARound = kChains<A> * (A::kHasDot4 ? 1 : 8);
  constexpr std::uint64_t kLanes = 16 / A::kRegisters;
  typename A::I32 codes = A::broadcast(kCode * 0x01010101);
  typename A::I32 x = A::broadcast(kActivation * 0x01010101);
  typename A::I32 sums[kChains<A>];
  for (auto& sum : sums) sum = A::broadcast(0);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    dot_round<A>(sums, codes, x, std::make_index_sequence<kChains<A>>());
  }
  llm::DotRun run{};
  for (const auto& sum : sums) run.sum += lane_total<A>(sum);
  run.macs = rounds * kWordsARound * kLanes * 4;
  run.expected = static_cast<std::uint32_t>(run.macs * kCode * kActivation);
  return run;
}

template <class A>
constexpr llm::PeakKernels make_peak_kernels() {
  return {.isa = A::kIsa, .read = read_memory<A>, .dot = dot_rounds<A>};
}

}  // namespace
