#include "quant/kernels/kernel_table.h"

namespace llm {

extern const KernelTable kKernelsScalar;
#if defined(__x86_64__)
extern const KernelTable kKernelsAvx2;
extern const KernelTable kKernelsAvx512;
extern const KernelTable kKernelsAvx512Vnni;
#endif

std::size_t matmul_workspace_bytes(std::size_t n_tokens) {
  constexpr std::size_t kMostPanels = 2;
  return n_tokens * kMostPanels * 16 * sizeof(float);
}

std::size_t attend_workspace_bytes(std::size_t head_dim) {
  constexpr std::size_t kChunk = 256;
  constexpr std::size_t kRowTile = 8;
  const std::size_t padded = (head_dim + 15) / 16 * 16;
  return (kChunk * head_dim + kChunk * padded + kRowTile * kChunk + kRowTile * (16 + padded)) *
         sizeof(float);
}

const KernelTable* kernel_table(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return &kKernelsScalar;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return &kKernelsAvx2;
    case Isa::kAvx512:
      return &kKernelsAvx512;
    case Isa::kAvx512Vnni:
      return &kKernelsAvx512Vnni;
#else
    default:
      return nullptr;
#endif
  }
  return nullptr;
}

}  // namespace llm
