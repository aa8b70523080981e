#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/state/sequence_state.h"
#include "quant/kernels/packed_matrix.h"
#include "quant/numerics/activation.h"
#include "quant/numerics/contract.h"

namespace llm::reference {

/// The operations of the forward pass in plain loops: the definition (docs/numerics.md) that every
/// fast path equals bit for bit. All work on one token; D = d_model.

/// y = x / rms(x) * w: ss = 16-lane sum of x^2, s = 1 / sqrt(ss / n + eps), y = (x * s) * w.
void rms_norm(std::span<const float> x, std::span<const float> weight, float eps,
              std::span<float> y);

/// rms_norm() of each head of x, (heads, weight.size()), in place.
void norm_heads(std::span<float> x, std::span<const float> weight, float eps);

/// y = W x for each of T tokens; x is (T, w.n_cols()), y (T, w.n_rows()). See
/// quant/formats/reference/dot.h.
void matmul(const PackedMatrix& w, Compute compute, std::span<const float> x, std::span<float> y);

/// Rotates the leading pairs of every head of x, (heads, head_dim), in place.
void rope(std::span<float> x, std::size_t head_dim, std::span<const float> cos,
          std::span<const float> sin);

/// Softmax-weighted values of a run of keys, not yet divided: o = sum e_j V_j, l = sum e_j,
/// e_j = exp(s_j - m).
struct AttentionPartial {
  float m;
  float l;
  std::vector<float> o;  ///< (head_dim)
};

/// What makes a score of the product of a query and a key.
struct ScoreRule {
  float scale;
  float cap = 0;  ///< contract::soft_cap(); 0: none

  float of(float product) const {
    const float score = scale * product;
    return cap > 0 ? contract::soft_cap(score, cap) : score;
  }
};

/// One query head over n keys of one chunk, from the chunk's `first` on; keys and values are (n,
/// head_dim) as read back from the cache.
/// @pre n >= 1, first + n <= 256
AttentionPartial attend_chunk(std::span<const float> q, const ScoreRule& rule, std::size_t first,
                              std::span<const float> keys, std::span<const float> values);

/// Rows of a head in --kv q8: int8 codes, and a scale for each group of 32 dims.
struct CodedRows {
  std::size_t head_dim;
  std::vector<std::int8_t> codes = {};  ///< (n, head_dim)
  std::vector<float> scales = {};       ///< (n, groups)

  std::size_t size() const { return codes.size() / head_dim; }
  std::size_t n_groups() const { return (head_dim + contract::kBlock - 1) / contract::kBlock; }
  std::size_t group_end(std::size_t group) const {
    return std::min(head_dim, (group + 1) * contract::kBlock);
  }
  float scale(std::size_t row, std::size_t group) const { return scales[row * n_groups() + group]; }
  /// Appends x, (head_dim), quantized.
  void add(std::span<const float> x);
};

/// Appends a position's keys and values as they are stored. @pre the cache is q8
void read_row(const KvRow& row, CodedRows& keys, CodedRows& values);

/// The same over keys and values in codes; q is quantized here.
AttentionPartial attend_chunk(std::span<const float> q, const ScoreRule& rule, std::size_t first,
                              const CodedRows& keys, const CodedRows& values);

/// Adds the partial result of a later chunk to `sum`: both are rescaled to the larger maximum.
void merge(AttentionPartial& sum, const AttentionPartial& later);

/// context = o / l.
void finish(const AttentionPartial& sum, std::span<float> context);

/// Causal attention of one query head at `position` over keys of KV head `kv_head`: the last
/// `window` of 0 .. position, or all where it is 0.
/// @param sink     the head's; nullptr: it has none
/// @param context  (head_dim), overwritten
void attend(std::span<const float> q, const ScoreRule& rule, const SequenceState& cache,
            std::size_t layer, std::size_t kv_head, std::size_t position, std::size_t window,
            const float* sink, std::span<float> context);

/// y[i] = contract::activate(kind, gate[i], up[i]).
void activate(Activation kind, std::span<const float> gate, std::span<const float> up,
              std::span<float> y);

/// x[i] = x[i] * factor.
void scale(std::span<float> x, float factor);

/// y[i] = fma(a, x[i], y[i]).
void axpy(float a, std::span<const float> x, std::span<float> y);

/// x += y * scale, both rounded.
void add(std::span<const float> y, std::span<float> x, float scale = 1.0F);

}  // namespace llm::reference
