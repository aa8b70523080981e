// Products by the tiles of AMX; memory is read as by AVX-512 VNNI.

#include <cstring>
#include <utility>

#include "bench/peak_kernels.h"
#include "quant/kernels/simd/amx_tiles.h"

namespace llm {
extern const PeakKernels kPeakAvx512Vnni;
}

namespace {

using namespace lane16;

std::uint32_t read_memory(const std::byte* memory, std::size_t n_bytes, int n_streams) {
  return llm::kPeakAvx512Vnni.read(memory, n_bytes, n_streams);
}

/// One product for each sum, `rounds` times.
template <int... kSum>
LLM_INLINE llm::DotRun dot_tiles(std::uint64_t rounds, std::integer_sequence<int, kSum...>) {
  constexpr int kCode = 15;
  constexpr int kActivation = 127;
  constexpr std::uint64_t kTileMacs = kTileRows * 16 * kTileRowBytes;
  alignas(64) std::byte operand[kTileRows][kTileRowBytes];
  alignas(64) std::int32_t sums[sizeof...(kSum)][kTileRows][16];
  const TileRegisters registers;
  std::memset(operand, kActivation, sizeof(operand));
  load_tile<kTokenTile>(operand, kTileRowBytes);
  std::memset(operand, kCode, sizeof(operand));
  load_tile<kCodeTile>(operand, kTileRowBytes);
  (zero_tile<kSum>(), ...);
  for (std::uint64_t round = 0; round < rounds; ++round) (multiply_tiles<true, kSum>(), ...);
  (store_tile<kSum>(sums[kSum]), ...);
  llm::DotRun run{};
  for (const auto& tile : sums) {
    for (const auto& row : tile) {
      for (const std::int32_t sum : row) run.sum += static_cast<std::uint32_t>(sum);
    }
  }
  run.macs = rounds * sizeof...(kSum) * kTileMacs;
  run.expected = static_cast<std::uint32_t>(run.macs * kCode * kActivation);
  return run;
}

llm::DotRun dot_rounds(std::uint64_t rounds) {
  return dot_tiles(rounds, std::make_integer_sequence<int, kSumTiles>());
}

}  // namespace

namespace llm {
extern const PeakKernels kPeakAmx;
const PeakKernels kPeakAmx = {.isa = Isa::kAmx, .read = read_memory, .dot = dot_rounds};
}  // namespace llm
