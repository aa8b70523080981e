#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_features.h"

namespace llm {

/// What a run of dot products did. `sum` and `expected` are over all 32-bit lanes, modulo 2^32:
/// the caller compares them, so no product can be left out.
struct DotRun {
  std::uint64_t macs;
  std::uint32_t sum;
  std::uint32_t expected;
};

/// The two loops whose speed bounds the engine's, once per instruction set.
struct PeakKernels {
  Isa isa;

  /// The sum of all 32-bit words at `memory`, modulo 2^32, read in order by `n_streams` (1, 2 or 4)
  /// neighbouring streams of equal length.
  /// @pre n_bytes is a multiple of 1024 and memory is 64-byte aligned
  std::uint32_t (*read)(const std::byte* memory, std::size_t n_bytes, int n_streams);

  /// `rounds` times one 8-bit dot product on each of several independent accumulators, all in
  /// registers. With a 4-byte dot product (VNNI) that is the instruction alone; without one it is
  /// maddubs and a 16-bit add, and for every eighth word also madd and a 32-bit add: the fewest
  /// instructions that stay exact for 4-bit codes.
  DotRun (*dot)(std::uint64_t rounds);
};

/// The loops of `isa`, or nullptr when this build has none.
const PeakKernels* peak_kernels(Isa isa);

}  // namespace llm
