#pragma once

// What attention over every type of cache shares: tiles of rows, the softmax of a chunk, merging.
// Part of an ISA unit.
//
// A *row* is one query head of one token; all rows of a call share one KV head.

#include "quant/kernels/float_ops.h"

namespace {

constexpr std::size_t kChunk = llm::contract::kAttentionChunk;
constexpr std::size_t kRowTile = llm::contract::kAttentionRows;

LLM_INLINE std::size_t round_up_16(std::size_t n) { return (n + 15) / 16 * 16; }

/// Neighbouring rows that are scored together against one chunk.
struct AttendTile {
  std::size_t first_row;
  std::size_t n_rows;  ///< 1 .. kRowTile
  // Each row sees keys [first_key, n_keys) of the chunk, at least one; both ascend by row.
  std::size_t first_key[kRowTile];
  std::size_t n_keys[kRowTile];
  float* scores;  ///< [kRowTile][kChunk]
  float* out;     ///< [kRowTile][out_stride]: m, l, then o from the 16th float on
  std::size_t out_stride;

  float* scores_of(std::size_t row) const { return scores + row * kChunk; }
  float* out_of(std::size_t row) const { return out + row * out_stride; }
  std::size_t most_keys() const { return n_keys[n_rows - 1]; }
};

/// Turns a row's scores [first, n) into e_j = exp(s_j - m), those before into 0; returns m and the
/// 16-lane sum l.
template <class A>
void exponentiate(float* scores, std::size_t first, std::size_t n, float* m_out, float* l_out) {
  const std::size_t begin = first / 16 * 16;
  std::memset(scores, 0, begin * sizeof(float));
  // exp of -inf is exactly 0, so padding lanes add nothing.
  for (std::size_t j = begin; j < first; ++j) scores[j] = -__builtin_inff();
  for (std::size_t j = n; j < round_up_16(n); ++j) scores[j] = -__builtin_inff();
  auto max = load_f32<A>(scores + begin);
  for (std::size_t j = begin + 16; j < n; j += 16) max = greater_of(load_f32<A>(scores + j), max);
  const float m = lane_max(max);
  const auto m16 = broadcast_f32<A>(m);
  auto sum = broadcast_f32<A>(0);
  for (std::size_t j = begin; j < n; j += 16) {
    const auto e = exp16(load_f32<A>(scores + j) - m16);
    store_f32(scores + j, e);
    sum = sum + e;
  }
  *m_out = m;
  *l_out = lane_sum(sum);
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

}  // namespace
