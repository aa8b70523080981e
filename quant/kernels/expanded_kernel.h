#pragma once

// Products of the types that are expanded first (expand.h). Part of an ISA unit.

#include "quant/kernels/expand.h"
#include "quant/kernels/matmul_kernel.h"
#include "quant/kernels/simple_codecs.h"

namespace {

template <>
struct Codec<llm::BlockExpanded> : ByteCodec<llm::BlockExpanded> {
  template <class A>
  static LLM_INLINE void scales(const std::byte* block, SubScales<A, 16>& out) {
    const std::byte* packed = bytes_at<Block, offsetof(Block, scales), 16>(block);
    for (std::size_t s = 0; s < 16; ++s) out.scale[s] = widen_s8<A>(packed + kPanelRows * s);
  }
};

/// Of types that are expanded: what expand_block() makes of a block, until the next one.
template <>
struct PanelBlocks<Codec<llm::BlockExpanded>> {
  llm::WeightType type;
  std::size_t bytes;
  alignas(64) std::byte expanded[kPanelRows * sizeof(llm::BlockExpanded)];

  explicit PanelBlocks(const llm::MatmulArgs& args)
      : type(args.type), bytes(kPanelRows * llm::block_traits(args.type).block_bytes) {}
  const std::byte* operator()(const std::byte* block) {
    llm::expand_block(type, block, expanded);
    return expanded;
  }
};

/// NVFP4, token by token: a block becomes four of Q8_0, two of them for each block of activations.
template <class A>
void matmul_nvfp4(const llm::MatmulArgs& args) {
  using T = Codec<llm::BlockQ8_0>;
  constexpr std::size_t kBlockBytes = kPanelRows * sizeof(llm::BlockNVFP4);
  const auto* x = static_cast<const llm::KernelQ8x32*>(args.x);
  const std::size_t n_blocks = args.n_cols / llm::BlockNVFP4::kWeights;
  auto* acc = reinterpret_cast<float*>(args.workspace);
  alignas(64) std::byte expanded[llm::kNvfp4Blocks * kPanelRows * T::kBytes];
  for (std::size_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    std::memset(acc, 0, args.n_tokens * kPanelRows * sizeof(float));
    for (std::size_t b = 0; b < n_blocks; ++b) {
      const std::byte* block = args.panels + (panel * n_blocks + b) * kBlockBytes;
      ask_for_next(args, block, kBlockBytes);
      llm::expand_block(args.type, block, expanded);
      for (std::size_t t = 0; t < args.n_tokens; ++t) {
        auto sum = load_f32<A>(acc + t * kPanelRows);
        for (std::size_t s = 0; s < llm::kNvfp4Blocks; ++s) {
          sum = direct_block<A, T>(expanded + s * kPanelRows * T::kBytes,
                                   x + (2 * b + s / 2) * args.n_tokens + t, 0, sum);
        }
        store_f32(acc + t * kPanelRows, sum);
      }
    }
    for (std::size_t t = 0; t < args.n_tokens; ++t) {
      write_row(args.y + t * args.y_stride + panel * kPanelRows, load_f32<A>(acc + t * kPanelRows),
                rows_in_panel(args, panel), args.add);
    }
  }
}

/// Integer codes of any type that is expanded.
template <class A, class Block>
LLM_INLINE void matmul_of_expanded(const llm::MatmulArgs& args) {
  using T = Codec<llm::BlockExpanded>;
  if constexpr (Block::kType == llm::WeightType::kNVFP4) {
    matmul_nvfp4<A>(args);
  } else if (args.n_tokens == 1) {
    matmul_one_token<A, T>(args);
  } else {
    // Panels one by one: half of the tiles to compile.
    matmul_batch<A, T, 1, Unpacked<A, T, 1>>(args);
  }
}

}  // namespace
