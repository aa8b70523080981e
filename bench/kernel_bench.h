#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "bench/peaks.h"

namespace llm {

/// What every benchmark of one run shares.
struct BenchContext {
  int threads = 1;
};

/// The peaks of `isa` on context.threads threads, measured on first use.
const Peaks& peaks_of(const BenchContext& context, Isa isa);

/// Instruction sets that this CPU and this build have.
std::vector<Isa> isas_here();

/// Seeded noise in [-1, 1).
void fill_noise(std::span<float> values, std::uint64_t seed);

/// Memory of a benchmark; ends the program when there is none.
template <typename T>
AlignedBuffer<T> allocate_or_exit(std::uint64_t count) {
  auto buffer = AlignedBuffer<T>::allocate(count, "benchmark");
  LLM_CHECK(buffer.ok());
  return std::move(buffer).value();
}

/// Matmul/TYPE/ISA/ROWSxCOLS/T:n for every weight type.
void register_matmul(const BenchContext& context);
/// Every entry of KernelTable but matmul, on one thread: NAME/SIZE/ISA in elements per second,
/// Attend/CACHE/T:n/keys:m/ISA in multiply-adds per second and, of one token, bytes of the cache.
void register_float_ops();

}  // namespace llm
