#pragma once

// The tile registers of AMX, eight of 16 rows x 64 bytes, and their products. Part of an ISA
// unit.
//
// Instructions are written out, because g++ 12's intrinsics take no constant expression as a
// register and do not say that they read memory.

#include <cstddef>
#include <cstdint>

#include "quant/kernels/simd/x86_ops.h"

#if defined(__AVX512VNNI__)
namespace {
namespace lane16 {

/// AVX-512 VNNI for all that is not a tile; products take signed codes.
struct AmxOps : Avx512VnniOps {
  static constexpr llm::Isa kIsa = llm::Isa::kAmx;
  static constexpr bool kSignedCodes = true;
};

constexpr std::size_t kTileRows = 16;
constexpr std::size_t kTileRowBytes = 64;

/// Which register is what: six hold sums, two the operands.
constexpr int kSumTiles = 6;
constexpr int kTokenTile = 6;
constexpr int kCodeTile = 7;

/// While one lives, this thread's tile registers are configured, all of full size: as operands 16
/// tokens x 64 codes, and 16 words x 16 rows x 4.
class TileRegisters {
 public:
  LLM_INLINE TileRegisters() {
    alignas(64) Configuration configuration{};
    configuration.palette = 1;
    for (int tile = 0; tile <= kCodeTile; ++tile) {
      configuration.row_bytes[tile] = kTileRowBytes;
      configuration.rows[tile] = kTileRows;
    }
    asm volatile("ldtilecfg %0" : : "m"(configuration));
  }
  // Registers in use would be saved at every change of threads.
  LLM_INLINE ~TileRegisters() { asm volatile("tilerelease"); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

 private:
  struct Configuration {
    std::uint8_t palette;
    std::uint8_t start_row;
    std::uint8_t reserved[14];
    std::uint16_t row_bytes[16];
    std::uint8_t rows[16];
  };
  static_assert(sizeof(Configuration) == 64);
};

template <int kTile>
LLM_INLINE void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

/// Rows from `memory` on, `stride` bytes apart.
template <int kTile>
LLM_INLINE void load_tile(const void* memory, std::size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(memory), "r"(stride), "i"(kTile) : "memory");
}

/// A sum, [token][row].
template <int kTile>
LLM_INLINE void store_tile(std::int32_t (&sum)[kTileRows][16]) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
               :
               : "r"(sum), "r"(kTileRowBytes), "i"(kTile)
               : "memory");
}

/// sum[t][r] += sum over k of tokens[t][k] codes[k / 4][4 r + k % 4], in int32; tokens are signed
/// bytes, codes are signed or not.
template <bool kSignedCodes, int kSum>
LLM_INLINE void multiply_tiles() {
  if constexpr (kSignedCodes) {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0"
                 :
                 : "i"(kSum), "i"(kTokenTile), "i"(kCodeTile));
  } else {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0"
                 :
                 : "i"(kSum), "i"(kTokenTile), "i"(kCodeTile));
  }
}

}  // namespace lane16
}  // namespace
#endif
