#pragma once

// Products of f32 weights (stored so, or dequantized) with f32 activations: acc = fma(w, x, acc) in
// ascending k, rows in lanes. Part of an ISA unit.

#include "quant/formats/block_visit.h"
#include "quant/kernels/expanded_kernel.h"
#include "quant/kernels/iq4_codecs.h"
#include "quant/kernels/k_codecs.h"
#include "quant/kernels/matmul_kernel.h"
#include "quant/kernels/simple_codecs.h"

namespace {

constexpr std::size_t kFloatTileColumns = 256;

/// Weights [k][16 rows] of up to 256 columns of one panel.
struct FloatTile {
  alignas(64) float w[kFloatTileColumns * kPanelRows];
};

/// Element sizes and conversions of the float types; each is its own block of one weight.
template <class A>
LLM_INLINE F32x16<A> load_weights_f32(llm::WeightType type, const std::byte* p) {
  switch (type) {
    case llm::WeightType::kF16:
      return from_half<A>(p);
    case llm::WeightType::kBF16:
      return from_bits(shift_left<16>(widen_u16<A>(p)));
    default:
      return load_f32<A>(reinterpret_cast<const float*>(p));
  }
}

/// Dequantizes one block of a panel into columns [0, kWeights) of `out`, with the order of
/// operations of quant/formats/dequantize.h.
template <class A, class T>
void dequantize_block(const std::byte* block, float* out) {
  static_for<T::kGroups>([&]<int g>() {
    Quad<A> quads[T::kGroupQuads];
    T::template quads<A, g>(block, quads);
    for (int q = 0; q < T::kGroupQuads; ++q) {
      const int quad = T::quad_at(g, q);
      F32x16<A> factor = T::template scale<A>(block);
      F32x16<A> offset;
      if constexpr (T::kMin) offset = T::template min<A>(block);
      if constexpr (SubScaled<T>) {
        SubScales<A, T::kSubs> sub;
        T::scales(block, sub);
        const int s = quad / (16 / T::kSubs);
        factor = factor * to_float(sub.scale[s]);
        if constexpr (T::kMin) offset = offset * to_float(sub.min[s]);
      }
      for (int i = 0; i < 16; ++i) {
        // Byte i % 4 of word i / 4.
        alignas(64) std::uint8_t bytes[64];
        store_i32(bytes, quads[q][i / 4]);
        alignas(64) std::int32_t codes[kPanelRows];
        for (std::size_t r = 0; r < kPanelRows; ++r) {
          const std::uint8_t byte = bytes[4 * r + static_cast<std::size_t>(i % 4)];
          codes[r] =
              kTakesSigned<A, T> ? static_cast<std::int8_t>(byte) : byte - code_offset<A, T>();
        }
        auto w = factor * to_float(load_i32<A>(codes));
        if constexpr (T::kMin) w = SubScaled<T> ? w - offset : w + offset;
        store_f32(out + static_cast<std::size_t>(16 * quad + i) * kPanelRows, w);
      }
    }
  });
}

/// acc[t] += W[0..columns) * x[t], for N tokens of a tile; acc is [token][16].
template <class A, int N>
void float_tile(const float* w, std::size_t columns, const float* x, std::size_t x_stride,
                float* acc) {
  F32x16<A> sum[N];
  _Pragma("GCC unroll 8") for (int n = 0; n < N; ++n) sum[n] = load_f32<A>(acc + n * 16);
  for (std::size_t k = 0; k < columns; ++k) {
    const auto weights = load_f32<A>(w + k * kPanelRows);
    _Pragma("GCC unroll 8") for (int n = 0; n < N; ++n) {
      sum[n] =
          fma(weights, broadcast_f32<A>(x[static_cast<std::size_t>(n) * x_stride + k]), sum[n]);
    }
  }
  _Pragma("GCC unroll 8") for (int n = 0; n < N; ++n) store_f32(acc + n * 16, sum[n]);
}

template <class A, int N = 8>
void float_tokens(const float* w, std::size_t columns, const float* x, std::size_t x_stride,
                  std::size_t n_tokens, float* acc) {
  std::size_t t = 0;
  for (; t + N <= n_tokens; t += N) {
    float_tile<A, N>(w, columns, x + t * x_stride, x_stride, acc + t * 16);
  }
  if constexpr (N > 1) {
    if (t < n_tokens) {
      float_tokens<A, N / 2>(w, columns, x + t * x_stride, x_stride, n_tokens - t, acc + t * 16);
    }
  }
}

/// fill(panel, first column, columns, out) provides weights as f32 [k][16].
template <class A, class Fill>
LLM_INLINE void matmul_filled(const llm::MatmulArgs& args, std::size_t step, Fill fill) {
  FloatTile tile;
  auto* acc = reinterpret_cast<float*>(args.workspace);
  const auto* x = static_cast<const float*>(args.x);
  for (std::size_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    std::memset(acc, 0, args.n_tokens * kPanelRows * sizeof(float));
    for (std::size_t k = 0; k < args.n_cols; k += step) {
      const std::size_t columns = args.n_cols - k < step ? args.n_cols - k : step;
      const float* weights = fill(panel, k, columns, tile.w);
      float_tokens<A>(weights, columns, x + k, args.n_cols, args.n_tokens, acc);
    }
    for (std::size_t t = 0; t < args.n_tokens; ++t) {
      write_row(args.y + t * args.y_stride + panel * kPanelRows, load_f32<A>(acc + t * kPanelRows),
                rows_in_panel(args, panel), args.add);
    }
  }
}

template <class A, class T>
void matmul_dequantized(const llm::MatmulArgs& args) {
  const std::size_t n_blocks = args.n_cols / T::kWeights;
  const auto fill = [&](std::size_t panel, std::size_t k, std::size_t columns, float* out) {
    const std::byte* block =
        args.panels + (panel * n_blocks + k / T::kWeights) * kPanelRows * T::kBytes;
    for (std::size_t done = 0; done < columns; done += T::kWeights) {
      dequantize_block<A, T>(block, out + done * kPanelRows);
      block += kPanelRows * T::kBytes;
    }
    return static_cast<const float*>(out);
  };
  matmul_filled<A>(args, kFloatTileColumns, fill);
}

/// Types that are expanded.
template <class A>
void matmul_expanded_in_f32(const llm::MatmulArgs& args) {
  const llm::BlockTraits& traits = llm::block_traits(args.type);
  const std::size_t n_blocks = args.n_cols / traits.block_weights;
  const auto fill = [&](std::size_t panel, std::size_t k, std::size_t columns, float* out) {
    const std::size_t first = panel * n_blocks + k / traits.block_weights;
    const std::byte* block = args.panels + first * kPanelRows * traits.block_bytes;
    for (std::size_t done = 0; done < columns; done += traits.block_weights) {
      llm::expand_to_f32(args.type, block, out + done * kPanelRows);
      block += kPanelRows * traits.block_bytes;
    }
    return static_cast<const float*>(out);
  };
  matmul_filled<A>(args, kFloatTileColumns, fill);
}

/// F32, F16 and BF16: weights are read where they lie when there is one token, converted once
/// otherwise.
template <class A, llm::WeightType kType>
void matmul_float_type(const llm::MatmulArgs& args) {
  constexpr std::size_t kElement = kType == llm::WeightType::kF32 ? 4 : 2;
  const std::size_t panel_bytes = args.n_cols * kPanelRows * kElement;
  if (args.n_tokens > 1) {
    const auto fill = [&](std::size_t panel, std::size_t k, std::size_t columns, float* out) {
      const std::byte* p = args.panels + panel * panel_bytes + k * kPanelRows * kElement;
      for (std::size_t i = 0; i < columns; ++i, p += kPanelRows * kElement) {
        store_f32(out + i * kPanelRows, load_weights_f32<A>(kType, p));
      }
      return static_cast<const float*>(out);
    };
    return matmul_filled<A>(args, kFloatTileColumns, fill);
  }
  const auto* x = static_cast<const float*>(args.x);
  for (std::size_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    const std::byte* p = args.panels + panel * panel_bytes;
    auto acc = broadcast_f32<A>(0);
    for (std::size_t k = 0; k < args.n_cols; ++k, p += kPanelRows * kElement) {
      acc = fma(load_weights_f32<A>(kType, p), broadcast_f32<A>(x[k]), acc);
    }
    write_row(args.y + panel * kPanelRows, acc, rows_in_panel(args, panel), args.add);
  }
}

/// Products of weights as f32.
template <class A>
void matmul_in_f32(const llm::MatmulArgs& args) {
  llm::visit_block_format(args.type, [&]<class Block>() {
    if constexpr (Block::kWeights == 1) {
      matmul_float_type<A, Block::kType>(args);
    } else if constexpr (llm::kIsExpanded<Block>) {
      matmul_expanded_in_f32<A>(args);
    } else {
      matmul_dequantized<A, Codec<Block>>(args);
    }
  });
}

/// Products of integer codes. @pre the type has them
template <class A>
void matmul_of_codes(const llm::MatmulArgs& args) {
  llm::visit_block_format(args.type, [&]<class Block>() {
    if constexpr (llm::kIsExpanded<Block>) {
      matmul_of_expanded<A, Block>(args);
    } else if constexpr (Block::kWeights > 1) {
      matmul_type<A, Codec<Block>>(args);
    }
  });
}

inline bool in_f32(const llm::MatmulArgs& args) {
  return args.dequantize || llm::block_traits(args.type).block_weights == 1;
}

/// Every matrix product.
template <class A>
void matmul(const llm::MatmulArgs& args) {
  return in_f32(args) ? matmul_in_f32<A>(args) : matmul_of_codes<A>(args);
}

}  // namespace
