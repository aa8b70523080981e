#pragma once

// Scores and weighted sums over a q8 cache (docs/numerics.md, "Keys and values in q8"), on 16
// lanes. Part of an ISA unit.
//
// Both are exact integer sums, so keys and values are read where they lie (KvLayout) and in any
// order: 4-byte dot products give the scores of 16 keys at once, products of 16-bit pairs (two
// weights, two codes) the sums of 16 dims. Keys that a row does not see have weight 0.

#include "quant/kernels/attention_tile.h"

namespace {

/// Codes of keys, for IntDot.
struct KeyCodes {
  static constexpr bool kSigned = true;
  static constexpr int kOffset = 128, kMaxCode = 255;
};

/// Rows that are summed at once, and registers of 16 dims: what of 32 registers, or 16, is left
/// for sums.
template <class A>
constexpr int kCodedRows = A::kRegisters == 1 ? 8 : 4;
template <class A>
constexpr int kValueRegisters = A::kRegisters == 1 ? 2 : 1;

/// body<N>(row) for rows [row, n) by tiles of N, then of N / 2, ...
template <int N, class Body>
LLM_INLINE void in_tiles(std::size_t n, const Body& body, std::size_t row = 0) {
  for (; row + N <= n; row += N) body.template operator()<N>(row);
  if constexpr (N > 1) in_tiles<N / 2>(n, body, row);
}

/// The parts of the workspace. A row has n_groups weights' sums and steps.
struct CodedSpace {
  float* ratios;          ///< [group][kChunk]: r_j
  float* ratio_steps;     ///< [group]: D / 32767
  std::int32_t* weights;  ///< [row of the tile][group][kChunk / 2]: word j % 16 of 32 keys has p_j
                          ///< and p_j+16
  std::int32_t* sums;     ///< [row][group], of the weights
  float* steps;           ///< [row][group]
  llm::KernelQ8x32* q;    ///< [row of the call][group]

  CodedSpace(std::byte* workspace, std::size_t n_groups) {
    ratios = reinterpret_cast<float*>(workspace);
    weights = reinterpret_cast<std::int32_t*>(ratios + n_groups * kChunk);
    sums = weights + kRowTile * n_groups * (kChunk / 2);
    steps = reinterpret_cast<float*>(sums + kRowTile * n_groups);
    ratio_steps = steps + kRowTile * n_groups;
    q = reinterpret_cast<llm::KernelQ8x32*>(ratio_steps + n_groups);
  }
};

/// scores[row][j] for N rows from q on and the keys of n_panels panels.
template <class A, int N>
void score_coded(const llm::KvLayout& layout, const std::byte* keys, std::size_t n_panels,
                 const llm::KernelQ8x32* q, float scale, float* scores) {
  using Dot = IntDot<A, KeyCodes>;
  const std::size_t n_groups = layout.n_groups();
  for (std::size_t panel = 0; panel < n_panels; ++panel) {
    F32x16<A> score[N];
    _Pragma("GCC unroll 8") for (int r = 0; r < N; ++r) score[r] = broadcast_f32<A>(0);
    for (std::size_t g = 0; g < n_groups; ++g) {
      const auto* q_row = q + g;
      I32x16<A> isum[N];
      _Pragma("GCC unroll 8") for (int r = 0; r < N; ++r) {
        const auto& x = q_row[static_cast<std::size_t>(r) * n_groups];
        isum[r] = broadcast_i32<A>(-code_offset<A, KeyCodes>() * x.sum);
      }
      const std::size_t n_words = layout.group_words(g);
      for (std::size_t w = 0; w < n_words; ++w, keys += 64) {
        const auto codes = signed_codes(load_i32<A>(keys));
        _Pragma("GCC unroll 8") for (int r = 0; r < N; ++r) {
          const auto x =
              broadcast_word<A>(q_row[static_cast<std::size_t>(r) * n_groups].qs + 4 * w);
          isum[r] = Dot::finish(isum[r], Dot::step(Dot::begin(isum[r]), codes, x));
        }
      }
      const auto d = load_f32<A>(reinterpret_cast<const float*>(keys));
      keys += 64;
      _Pragma("GCC unroll 8") for (int r = 0; r < N; ++r) {
        const auto dq = broadcast_f32<A>(q_row[static_cast<std::size_t>(r) * n_groups].d);
        score[r] = fma(to_float(isum[r]), dq * d, score[r]);
      }
    }
    const auto scale16 = broadcast_f32<A>(scale);
    _Pragma("GCC unroll 8") for (int r = 0; r < N; ++r) {
      store_f32(scores + static_cast<std::size_t>(r) * kChunk + panel * 16, scale16 * score[r]);
    }
  }
}

/// Rounds the weights of n keys and stores them as words, 0 for keys [n, most); both are multiples
/// of 32. Returns their sum. Of what NaN gives, 15 bits are kept, so that sums cannot overflow.
template <class A>
std::int32_t code_weights(const float* e, const float* ratios, std::size_t n, std::size_t most,
                          std::int32_t* words) {
  // Adding 1.5 * 2^23 rounds to an integer, half to even, and leaves it in the low bits.
  const auto magic = broadcast_f32<A>(0x1.8p+23F);
  const auto low_half = broadcast_i32<A>(0xFFFF);
  const auto mask = broadcast_i32<A>(0x7FFF7FFF);
  const auto ones = broadcast_i32<A>(0x00010001);
  auto sum = broadcast_i32<A>(0);
  for (std::size_t j = 0; j < n; j += 32) {
    const auto low = bits(fma(load_f32<A>(e + j), load_f32<A>(ratios + j), magic));
    const auto high = bits(fma(load_f32<A>(e + j + 16), load_f32<A>(ratios + j + 16), magic));
    const auto pairs = ((low & low_half) | shift_left<16>(high)) & mask;
    store_i32(words + j / 2, pairs);
    sum = dot2(sum, pairs, ones);
  }
  for (std::size_t j = n; j < most; j += 32) store_i32(words + j / 2, broadcast_i32<A>(0));
  return lane_sum(sum);
}

/// o of N rows and V registers of dims from `dim` on, of one group, over n keys (a multiple of 32).
template <class A, int N, int V>
LLM_INLINE void weigh_coded(const llm::KvLayout& layout, const std::byte* values,
                            const CodedSpace& space, const AttendTile& tile, std::size_t row,
                            std::size_t dim, std::size_t n) {
  const std::size_t n_groups = layout.n_groups();
  const std::size_t at = row * n_groups + dim / llm::KvLayout::kGroup;
  const std::int32_t* weights = space.weights + at * (kChunk / 2);
  const std::size_t row_words = n_groups * (kChunk / 2);
  const auto bytes = broadcast_i32<A>(0x00FF00FF);
  I32x16<A> sum[N][V];
  _Pragma("GCC unroll 8") for (int r = 0; r < N; ++r) {
    const std::int32_t of_weights = space.sums[at + static_cast<std::size_t>(r) * n_groups];
    for (int v = 0; v < V; ++v)
      sum[r][v] = broadcast_i32<A>(-llm::KvLayout::kValueOffset * of_weights);
  }
  values += dim * llm::KvLayout::kWord;
  const std::size_t word_bytes = layout.padded_dims() * llm::KvLayout::kWord;
  for (std::size_t j = 0; j < n; j += 32, values += layout.value_block_bytes(), weights += 16) {
    const std::byte* word = values;
    for (std::size_t w = 0; w < llm::KvLayout::kBlockWords; ++w, word += word_bytes) {
      I32x16<A> even[V];
      I32x16<A> odd[V];
      _Pragma("GCC unroll 2") for (int v = 0; v < V; ++v) {
        const auto codes = load_i32<A>(word + 64 * v);
        even[v] = codes & bytes;
        odd[v] = shift_right<8>(codes) & bytes;
      }
      _Pragma("GCC unroll 8") for (int r = 0; r < N; ++r) {
        const std::int32_t* p = weights + static_cast<std::size_t>(r) * row_words + 2 * w;
        const auto p_even = broadcast_i32<A>(p[0]);
        const auto p_odd = broadcast_i32<A>(p[1]);
        _Pragma("GCC unroll 2") for (int v = 0; v < V; ++v) {
          sum[r][v] = dot2(sum[r][v], even[v], p_even);
          sum[r][v] = dot2(sum[r][v], odd[v], p_odd);
        }
      }
    }
  }
  _Pragma("GCC unroll 8") for (int r = 0; r < N; ++r) {
    const auto step = broadcast_f32<A>(space.steps[at + static_cast<std::size_t>(r) * n_groups]);
    float* out = tile.out_of(row + static_cast<std::size_t>(r)) + 16 + dim;
    for (int v = 0; v < V; ++v) store_f32(out + 16 * v, to_float(sum[r][v]) * step);
  }
}

/// The steps of attention whose arithmetic depends on the type of cache: here, q8.
template <class A>
class CodedCache {
 public:
  CodedCache(const llm::AttendArgs& args, std::byte* workspace)
      : layout_(args.layout),
        args_(args),
        n_groups_(args.layout.n_groups()),
        space_(workspace, n_groups_) {
    for (std::size_t row = 0; row < args.n_tokens * args.n_heads; ++row) {
      quantize_head(
          args.q + row / args.n_heads * args.q_stride + row % args.n_heads * layout_.head_dim,
          space_.q + row * n_groups_);
    }
  }

  void begin_chunk(std::size_t chunk, std::size_t) {
    keys_ = args_.pages[chunk] + args_.keys_offset;
    values_ = args_.pages[chunk] + args_.values_offset;
    first_ratio_ = n_ratios_ = 0;
  }

  void score(const AttendTile& tile, float scale) const {
    const std::size_t n_panels = round_up_16(tile.most_keys()) / 16;
    in_tiles<kCodedRows<A>>(tile.n_rows, [&]<int N>(std::size_t r) {
      score_coded<A, N>(layout_, keys_, n_panels, space_.q + (tile.first_row + r) * n_groups_,
                        scale, tile.scores_of(r));
    });
  }

  void weigh(const AttendTile& tile) {
    const std::size_t most = round_up_32(tile.most_keys());
    for (std::size_t r = 0; r < tile.n_rows; ++r) code_row(tile, r, most);
    in_tiles<kCodedRows<A>>(tile.n_rows, [&]<int N>(std::size_t r) {
      std::size_t dim = 0;
      constexpr std::size_t kDims = 16 * kValueRegisters<A>;
      for (; dim + kDims <= layout_.padded_dims(); dim += kDims)
        weigh_coded<A, N, kValueRegisters<A>>(layout_, values_, space_, tile, r, dim, most);
      if constexpr (kDims > 16) {
        if (dim < layout_.padded_dims())
          weigh_coded<A, N, 1>(layout_, values_, space_, tile, r, dim, most);
      }
    });
  }

 private:
  static constexpr std::size_t round_up_32(std::size_t n) { return (n + 31) / 32 * 32; }

  /// Groups of one head's q; the last is filled up with zeros, which change neither scale nor sums.
  void quantize_head(const float* q, llm::KernelQ8x32* out) const {
    for (std::size_t g = 0; g < n_groups_; ++g, q += llm::KvLayout::kGroup) {
      float padded[llm::KvLayout::kGroup] = {};
      const std::size_t n = layout_.group_dims(g);
      std::memcpy(padded, q, n * sizeof(float));
      quantize_q8x32<A>(padded, llm::KvLayout::kGroup, out + g, 1);
    }
  }

  /// Weights of row r of the tile, as integers, with their sums and steps; 0 up to `most` keys.
  void code_row(const AttendTile& tile, std::size_t r, std::size_t most) {
    const std::size_t n = tile.n_keys[r];
    find_ratios(tile.first_key[r], n);
    float* e = tile.scores_of(r);
    for (std::size_t j = round_up_16(n); j < round_up_32(n); ++j) e[j] = 0;
    const float l = tile.out_of(r)[1];
    for (std::size_t g = 0; g < n_groups_; ++g) {
      const std::size_t at = r * n_groups_ + g;
      space_.sums[at] = code_weights<A>(e, space_.ratios + g * kChunk, round_up_32(n), most,
                                        space_.weights + at * (kChunk / 2));
      space_.steps[at] = space_.ratio_steps[g] + (l - l);
    }
  }

  /// r_j of the chunk's keys [first, n), 0 before and up to the next multiple of 32, and the
  /// groups' steps.
  void find_ratios(std::size_t first, std::size_t n) {
    if (first == first_ratio_ && n == n_ratios_) return;
    first_ratio_ = first;
    n_ratios_ = n;
    constexpr auto kMost = static_cast<float>(llm::contract::kMaxAttentionWeight);
    const std::size_t all = round_up_32(n);
    for (std::size_t g = 0; g < n_groups_; ++g) {
      float* r = space_.ratios + g * kChunk;
      for (std::size_t j = 0; j < n; j += 32) {
        const std::size_t rest = n - j < 32 ? n - j : 32;
        std::memcpy(r + j, values_ + layout_.value_scale_at(j, g), rest * sizeof(float));
      }
      for (std::size_t j = n; j < all; ++j) r[j] = 0;
      std::memset(r, 0, first * sizeof(float));
      const CodeScale scale = code_scale(largest_magnitude<A>(r, all), kMost);
      space_.ratio_steps[g] = scale.step;
      const auto inverse = broadcast_f32<A>(scale.inverse);
      for (std::size_t j = 0; j < all; j += 16) {
        store_f32(r + j, scale.vanishes ? broadcast_f32<A>(0) : load_f32<A>(r + j) * inverse);
      }
    }
  }

  const llm::KvLayout layout_;
  const llm::AttendArgs& args_;
  std::size_t n_groups_;
  CodedSpace space_;
  const std::byte* keys_ = nullptr;
  const std::byte* values_ = nullptr;
  // The keys that space_.ratios are for.
  std::size_t first_ratio_ = 0;
  std::size_t n_ratios_ = 0;
};

}  // namespace
