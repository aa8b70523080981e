#pragma once

// Scores and weighted sums over a cache of f16 or f32, on 16 lanes. Part of an ISA unit.
//
// Keys lie 16 positions to a register (scores of 16 keys at once, each its own chain over d),
// values 16 dims to a register (each its own chain over positions). A chain never runs past its
// row's last key: adding 0 * V could turn -0 into +0.

#include "quant/kernels/attention_tile.h"

namespace {

/// The parts of the workspace.
struct FloatSpace {
  float* keys;    ///< [key / 16][d][16]
  float* values;  ///< [key][round_up_16(head_dim)], zero-padded

  FloatSpace(std::byte* workspace, std::size_t head_dim) {
    keys = reinterpret_cast<float*>(workspace);
    values = keys + kChunk * head_dim;
  }
};

template <class A>
LLM_INLINE F32x16<A> load_cached(const std::byte* base, std::size_t index, bool half) {
  if (half) return from_half<A>(base + 2 * index);
  return load_f32<A>(reinterpret_cast<const float*>(base + 4 * index));
}

/// Converts the first n keys and values of chunk c to f32.
template <class A>
void read_chunk(const llm::AttendArgs& args, std::size_t chunk, std::size_t n,
                const FloatSpace& space) {
  const std::size_t dim = args.layout.head_dim;
  const bool half = args.layout.type == llm::KvType::kF16;
  const std::byte* keys = args.pages[chunk] + args.keys_offset;
  const std::byte* values = args.pages[chunk] + args.values_offset;
  for (std::size_t i = 0; i < round_up_16(n) * dim; i += 16) {
    store_f32(space.keys + i, load_cached<A>(keys, i, half));
  }
  const std::size_t stride = round_up_16(dim);
  if (stride == dim) {
    for (std::size_t i = 0; i < n * dim; i += 16) {
      store_f32(space.values + i, load_cached<A>(values, i, half));
    }
    return;
  }
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t d = 0; d < stride; ++d) {
      float v = 0;
      if (d < dim) {
        // One element through the lanes: 16 bytes or more may not be readable here.
        alignas(64) std::byte element[64] = {};
        const std::size_t index = j * dim + d;
        std::memcpy(element, values + index * (half ? 2 : 4), half ? 2 : 4);
        alignas(64) float lanes[16];
        store_f32(lanes, load_cached<A>(element, 0, half));
        v = lanes[0];
      }
      space.values[j * stride + d] = v;
    }
  }
}

/// scores[row][j] = scale * (q . K_j) for N rows and all keys of n_panels panels.
template <class A, int N>
void score_rows(const FloatSpace& space, float* scores, const float* const* q, std::size_t head_dim,
                std::size_t n_panels, float scale) {
  const auto scale16 = broadcast_f32<A>(scale);
  for (std::size_t panel = 0; panel < n_panels; ++panel) {
    const float* keys = space.keys + panel * head_dim * 16;
    F32x16<A> dot[N];
    _Pragma("GCC unroll 8") for (int r = 0; r < N; ++r) dot[r] = broadcast_f32<A>(0);
    for (std::size_t d = 0; d < head_dim; ++d) {
      const auto k = load_f32<A>(keys + d * 16);
      _Pragma("GCC unroll 8") for (int r = 0; r < N; ++r) {
        dot[r] = fma(broadcast_f32<A>(q[r][d]), k, dot[r]);
      }
    }
    _Pragma("GCC unroll 8") for (int r = 0; r < N; ++r) {
      store_f32(scores + static_cast<std::size_t>(r) * kChunk + panel * 16, scale16 * dot[r]);
    }
  }
}

/// o[d] += e_j V_j[d] for N rows, keys [begin, end) and V registers of 16 dims from `dim` on.
template <class A, int N, int V>
LLM_INLINE void weigh_values(const FloatSpace& space, const AttendTile& tile, std::size_t row,
                             std::size_t dim, std::size_t stride, std::size_t begin,
                             std::size_t end) {
  float* out = tile.out_of(row) + 16 + dim;
  F32x16<A> o[N][V];
  for (int r = 0; r < N; ++r) {
    for (int v = 0; v < V; ++v) {
      o[r][v] = load_f32<A>(out + static_cast<std::size_t>(r) * tile.out_stride +
                            16 * static_cast<std::size_t>(v));
    }
  }
  const float* e = tile.scores_of(row);
  for (std::size_t j = begin; j < end; ++j) {
    F32x16<A> values[V];
    _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) {
      values[v] = load_f32<A>(space.values + j * stride + dim + 16 * static_cast<std::size_t>(v));
    }
    _Pragma("GCC unroll 4") for (int r = 0; r < N; ++r) {
      const auto weight = broadcast_f32<A>(e[static_cast<std::size_t>(r) * kChunk + j]);
      _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) {
        o[r][v] = fma(weight, values[v], o[r][v]);
      }
    }
  }
  for (int r = 0; r < N; ++r) {
    for (int v = 0; v < V; ++v) {
      store_f32(
          out + static_cast<std::size_t>(r) * tile.out_stride + 16 * static_cast<std::size_t>(v),
          o[r][v]);
    }
  }
}

/// All dims of N neighbouring rows over keys [begin, end).
template <class A, int N>
void weigh_rows(const FloatSpace& space, const AttendTile& tile, std::size_t row,
                std::size_t stride, std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  std::size_t dim = 0;
  for (; dim + 64 <= stride; dim += 64) {
    weigh_values<A, N, 4>(space, tile, row, dim, stride, begin, end);
  }
  for (; dim < stride; dim += 16) {
    weigh_values<A, N, 1>(space, tile, row, dim, stride, begin, end);
  }
}

/// The steps of attention whose arithmetic depends on the type of cache: here, f16 and f32.
template <class A>
class FloatCache {
 public:
  FloatCache(const llm::AttendArgs& args, std::byte* workspace)
      : args_(args), space_(workspace, args.layout.head_dim) {}

  /// Turns to a chunk, of which n keys are seen by some row.
  void begin_chunk(std::size_t chunk, std::size_t n) { read_chunk<A>(args_, chunk, n, space_); }

  /// The scores of a tile.
  void score(const AttendTile& tile, float scale) const {
    const std::size_t dim = args_.layout.head_dim;
    const float* q[kRowTile];
    for (std::size_t r = 0; r < kRowTile; ++r) {
      const std::size_t row = tile.first_row + (r < tile.n_rows ? r : tile.n_rows - 1);
      q[r] = args_.q + row / args_.n_heads * args_.q_stride + row % args_.n_heads * dim;
    }
    const std::size_t n_panels = round_up_16(tile.most_keys()) / 16;
    if (tile.n_rows > 1) {
      score_rows<A, kRowTile>(space_, tile.scores, q, dim, n_panels, scale);
    } else {
      score_rows<A, 1>(space_, tile.scores, q, dim, n_panels, scale);
    }
  }

  /// o of a tile whose scores have become e_j, and whose m and l are known.
  void weigh(const AttendTile& tile) const {
    const std::size_t stride = round_up_16(args_.layout.head_dim);
    for (std::size_t r = 0; r < tile.n_rows; ++r)
      std::memset(tile.out_of(r) + 16, 0, stride * sizeof(float));
    std::size_t r = 0;
    for (; r + 4 <= tile.n_rows; r += 4) {
      // What all four see is summed together, what is before and after it by row.
      const std::size_t end = tile.n_keys[r];
      const std::size_t begin = std::min(tile.first_key[r + 3], end);
      for (std::size_t i = r; i < r + 4; ++i)
        weigh_rows<A, 1>(space_, tile, i, stride, tile.first_key[i], begin);
      weigh_rows<A, 4>(space_, tile, r, stride, begin, end);
      for (std::size_t i = r; i < r + 4; ++i)
        weigh_rows<A, 1>(space_, tile, i, stride, std::max(end, tile.first_key[i]), tile.n_keys[i]);
    }
    for (; r < tile.n_rows; ++r)
      weigh_rows<A, 1>(space_, tile, r, stride, tile.first_key[r], tile.n_keys[r]);
  }

 private:
  const llm::AttendArgs& args_;
  FloatSpace space_;
};

}  // namespace
