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

std::size_t attend_workspace_bytes(const KvLayout& layout, std::size_t n_rows) {
  using contract::kAttentionChunk, contract::kAttentionRows, contract::kLanes;
  const std::size_t padded = layout.padded_dims();
  // Scores, and {m, l, o}, of a tile.
  const std::size_t tile = kAttentionRows * (kAttentionChunk + kLanes + padded) * sizeof(float);
  if (layout.type != KvType::kQ8)
    return tile + kAttentionChunk * (layout.head_dim + padded) * sizeof(float);
  // Of each group: ratios and their step; a tile's weights, their sums and steps; codes of q.
  const std::size_t words = kAttentionChunk + 1 + kAttentionRows * (kAttentionChunk / 2 + 2);
  return tile + layout.n_groups() * (words * sizeof(float) + n_rows * sizeof(KernelQ8x32));
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
