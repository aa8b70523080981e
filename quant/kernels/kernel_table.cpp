#include "quant/kernels/kernel_table.h"

#include "quant/contract/contract.h"

namespace llm {

extern const KernelTable kKernelsScalar;
#if defined(__x86_64__)
extern const KernelTable kKernelsAvx2;
extern const KernelTable kKernelsAvx512;
extern const KernelTable kKernelsAvx512Vnni;
#endif

std::size_t matmul_workspace_bytes(std::size_t n_tokens) {
  return n_tokens * contract::kMaxTilePanels * contract::kPanelRows * sizeof(float);
}

std::size_t attend_workspace_bytes(std::size_t head_dim) {
  using contract::kAttentionChunk, contract::kAttentionRows, contract::kLanes;
  const std::size_t padded = (head_dim + kLanes - 1) / kLanes * kLanes;
  return (kAttentionChunk * (head_dim + padded) +
          kAttentionRows * (kAttentionChunk + kLanes + padded)) *
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
