#include "quant/kernels/kernel_table.h"

#include "quant/numerics/contract.h"

namespace llm {

extern const KernelTable kKernelsScalar;
#define LLM_ISA(name) extern const KernelTable kKernels##name;
#include "base/built_isas.inc"
#undef LLM_ISA

namespace {

constexpr const KernelTable* kTables[] = {
    &kKernelsScalar,
#define LLM_ISA(name) &kKernels##name,
#include "base/built_isas.inc"
#undef LLM_ISA
};

}  // namespace

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
  for (const KernelTable* table : kTables) {
    if (table->isa == isa) return table;
  }
  return nullptr;
}

}  // namespace llm
