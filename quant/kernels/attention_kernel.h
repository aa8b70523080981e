#ifndef LLM_QUANT_KERNELS_ATTENTION_KERNEL_H_
#define LLM_QUANT_KERNELS_ATTENTION_KERNEL_H_

// Causal attention over chunks of keys, on 16 lanes. Part of an ISA unit.
//
// A *row* is one query head of one token; all rows of a call share one KV head. Keys lie 16
// positions to a register (scores of 16 keys at once, each its own chain over d), values 16 dims to
// a register (each its own chain over positions). A chain never runs past its row's last key:
// adding 0 * V could turn -0 into +0.

#include "quant/kernels/float_ops.h"

namespace {

constexpr std::size_t kChunk = llm::contract::kAttentionChunk;
constexpr std::size_t kRowTile = llm::contract::kAttentionRows;

LLM_INLINE std::size_t round_up_16(std::size_t n) { return (n + 15) / 16 * 16; }

/// The parts of AttendArgs::workspace.
struct AttendSpace {
  float* keys;    ///< [key / 16][d][16]
  float* values;  ///< [key][round_up_16(head_dim)], zero-padded
  float* scores;  ///< [kRowTile][kChunk]
  float* out;     ///< [kRowTile][16 + round_up_16(head_dim)]: m, l, then o from the 16th float on

  AttendSpace(std::byte* workspace, std::size_t head_dim) {
    keys = reinterpret_cast<float*>(workspace);
    values = keys + kChunk * head_dim;
    scores = values + kChunk * round_up_16(head_dim);
    out = scores + kRowTile * kChunk;
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
                const AttendSpace& space) {
  const std::size_t dim = args.head_dim;
  const std::byte* keys = args.pages[chunk] + args.keys_offset;
  const std::byte* values = args.pages[chunk] + args.values_offset;
  for (std::size_t i = 0; i < round_up_16(n) * dim; i += 16) {
    store_f32(space.keys + i, load_cached<A>(keys, i, args.half));
  }
  const std::size_t stride = round_up_16(dim);
  if (stride == dim) {
    for (std::size_t i = 0; i < n * dim; i += 16) {
      store_f32(space.values + i, load_cached<A>(values, i, args.half));
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
        std::memcpy(element, values + index * (args.half ? 2 : 4), args.half ? 2 : 4);
        alignas(64) float lanes[16];
        store_f32(lanes, load_cached<A>(element, 0, args.half));
        v = lanes[0];
      }
      space.values[j * stride + d] = v;
    }
  }
}

/// scores[row][j] = scale * (q . K_j) for N rows and all keys of n_panels panels.
template <class A, int N>
void score_rows(const AttendSpace& space, const float* const* q, std::size_t head_dim,
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
      store_f32(space.scores + static_cast<std::size_t>(r) * kChunk + panel * 16, scale16 * dot[r]);
    }
  }
}

/// Turns a row's n scores into e_j = exp(s_j - m); returns m and the 16-lane sum l.
template <class A>
void exponentiate(float* scores, std::size_t n, float* m_out, float* l_out) {
  // exp of -inf is exactly 0, so padding lanes add nothing.
  for (std::size_t j = n; j < round_up_16(n); ++j) scores[j] = -__builtin_inff();
  auto max = load_f32<A>(scores);
  for (std::size_t j = 16; j < n; j += 16) max = greater_of(load_f32<A>(scores + j), max);
  alignas(64) float lanes[16];
  store_f32(lanes, max);
  float m = lanes[0];
  for (const float lane : lanes) m = lane > m ? lane : m;
  const auto m16 = broadcast_f32<A>(m);
  auto sum = broadcast_f32<A>(0);
  for (std::size_t j = 0; j < n; j += 16) {
    const auto e = exp16(load_f32<A>(scores + j) - m16);
    store_f32(scores + j, e);
    sum = sum + e;
  }
  *m_out = m;
  *l_out = lane_sum(sum);
}

/// o[d] += e_j V_j[d] for N rows, keys [begin, end) and V registers of 16 dims from `dim` on.
template <class A, int N, int V>
LLM_INLINE void weigh_values(const AttendSpace& space, std::size_t row, std::size_t dim,
                             std::size_t stride, std::size_t begin, std::size_t end,
                             std::size_t out_stride) {
  F32x16<A> o[N][V];
  for (int r = 0; r < N; ++r) {
    for (int v = 0; v < V; ++v) {
      o[r][v] = load_f32<A>(space.out + (row + static_cast<std::size_t>(r)) * out_stride + 16 +
                            dim + 16 * static_cast<std::size_t>(v));
    }
  }
  const float* e = space.scores + row * kChunk;
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
      store_f32(space.out + (row + static_cast<std::size_t>(r)) * out_stride + 16 + dim +
                    16 * static_cast<std::size_t>(v),
                o[r][v]);
    }
  }
}

/// All dims of N neighbouring rows over keys [begin, end).
template <class A, int N>
void weigh_rows(const AttendSpace& space, std::size_t row, std::size_t stride, std::size_t begin,
                std::size_t end) {
  if (begin >= end) return;
  const std::size_t out_stride = 16 + stride;
  std::size_t dim = 0;
  for (; dim + 64 <= stride; dim += 64) {
    weigh_values<A, N, 4>(space, row, dim, stride, begin, end, out_stride);
  }
  for (; dim < stride; dim += 16) {
    weigh_values<A, N, 1>(space, row, dim, stride, begin, end, out_stride);
  }
}

/// sum = sum merged with `later`, both {m, l, o[head_dim]}.
template <class A>
void merge(float* sum, const float* later, std::size_t head_dim) {
  const float m = later[0] > sum[0] ? later[0] : sum[0];
  const auto a = exp16(broadcast_f32<A>(sum[0] - m));
  const auto b = exp16(broadcast_f32<A>(later[0] - m));
  alignas(64) float l[16];
  store_f32(l, fma(broadcast_f32<A>(later[1]), b, broadcast_f32<A>(sum[1]) * a));
  std::size_t d = 2;
  for (; d + 16 <= head_dim + 2; d += 16) {
    store_f32(sum + d, fma(load_f32<A>(later + d), b, load_f32<A>(sum + d) * a));
  }
  const std::size_t rest = head_dim + 2 - d;
  if (rest > 0) {
    store_tail(sum + d, fma(load_tail<A>(later + d, rest), b, load_tail<A>(sum + d, rest) * a),
               rest);
  }
  sum[0] = m;
  sum[1] = l[0];
}

template <class A>
void finish(const float* partial, std::size_t head_dim, float* context) {
  const auto l = broadcast_f32<A>(partial[1]);
  std::size_t d = 0;
  for (; d + 16 <= head_dim; d += 16) {
    store_f32(context + d, load_f32<A>(partial + 2 + d) / l);
  }
  for (; d < head_dim; ++d) context[d] = partial[2 + d] / partial[1];
}

/// One tile of up to kRowTile rows against the chunk in the workspace.
template <class A>
void attend_rows(const llm::AttendArgs& args, const AttendSpace& space, std::size_t first_row,
                 std::size_t n_rows, std::size_t chunk, float scale) {
  const std::size_t dim = args.head_dim;
  const std::size_t stride = round_up_16(dim);
  const std::size_t out_stride = 16 + stride;
  const float* q[kRowTile];
  std::size_t n_keys[kRowTile];
  for (std::size_t r = 0; r < kRowTile; ++r) {
    const std::size_t row = first_row + (r < n_rows ? r : n_rows - 1);
    const std::size_t token = row / args.n_heads;
    q[r] = args.q + token * args.q_stride + row % args.n_heads * dim;
    const std::size_t keys = args.first_position + token + 1 - chunk * kChunk;
    n_keys[r] = keys < kChunk ? keys : kChunk;
  }
  const std::size_t n_panels = round_up_16(n_keys[n_rows - 1]) / 16;
  if (n_rows > 1) {
    score_rows<A, kRowTile>(space, q, dim, n_panels, scale);
  } else {
    score_rows<A, 1>(space, q, dim, n_panels, scale);
  }
  for (std::size_t r = 0; r < n_rows; ++r) {
    float* out = space.out + r * out_stride;
    std::memset(out, 0, out_stride * sizeof(float));
    exponentiate<A>(space.scores + r * kChunk, n_keys[r], out, out + 1);
  }
  std::size_t r = 0;
  for (; r + 4 <= n_rows; r += 4) {
    weigh_rows<A, 4>(space, r, stride, 0, n_keys[r]);
    for (std::size_t i = 1; i < 4; ++i) {
      weigh_rows<A, 1>(space, r + i, stride, n_keys[r], n_keys[r + i]);
    }
  }
  for (; r < n_rows; ++r) weigh_rows<A, 1>(space, r, stride, 0, n_keys[r]);

  for (r = 0; r < n_rows; ++r) {
    float* out = space.out + r * out_stride;
    // m, l and o become neighbours, as in a partial result.
    out[14] = out[0];
    out[15] = out[1];
    float* partial = args.partial + (first_row + r) * (2 + dim);
    if (chunk == args.chunk_begin) {
      std::memcpy(partial, out + 14, (2 + dim) * sizeof(float));
    } else {
      merge<A>(partial, out + 14, dim);
    }
  }
}

template <class A>
void attend(const llm::AttendArgs& args) {
  const AttendSpace space(args.workspace, args.head_dim);
  const auto scale = static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(args.head_dim)));
  const std::size_t n_rows = args.n_tokens * args.n_heads;
  for (std::size_t chunk = args.chunk_begin; chunk < args.chunk_end; ++chunk) {
    const std::size_t first_key = chunk * kChunk;
    // Tokens before the chunk see none of its keys.
    const std::size_t skip = first_key > args.first_position ? first_key - args.first_position : 0;
    if (skip >= args.n_tokens) break;
    const std::size_t all = args.first_position + args.n_tokens - first_key;
    read_chunk<A>(args, chunk, all < kChunk ? all : kChunk, space);
    for (std::size_t row = skip * args.n_heads; row < n_rows; row += kRowTile) {
      const std::size_t rest = n_rows - row;
      attend_rows<A>(args, space, row, rest < kRowTile ? rest : kRowTile, chunk, scale);
    }
  }
}

}  // namespace

#endif  // LLM_QUANT_KERNELS_ATTENTION_KERNEL_H_
