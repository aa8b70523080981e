#pragma once

// Products of packed panels with a batch of quantized activations. Part of an ISA unit.
//
// A batch of several tokens: a block of kTilePanels panels is unpacked once to 8-bit codes in L1
// (Unpacked), then register tiles of kTilePanels x kTileTokens run over all tokens; the f32
// accumulators of the batch lie in the workspace as [token][panel][16]. A few tokens: the codes go
// from the packed block straight into the products, since memory is the limit. Both give each
// output the one order of docs/numerics.md: integer sums of a block are exact in any order, and the
// f32 accumulator of an output sees its blocks in ascending k.

#include "quant/kernels/block_product.h"

namespace {

// ---- unpacked blocks, for batches

/// Codes of kPanels panels, as [word][panel][64 bytes]: of one super-block with scales for
/// sub-blocks, or of kUnpackedColumns.
template <class A, class T, int kPanels>
struct Unpacked {
  static constexpr int kBlocks =
      SubScaled<T> ? 1 : static_cast<int>(llm::kUnpackedColumns) / T::kWeights;
  static constexpr int kWords = kBlocks * T::kWeights / 4;
  struct Simple {
    F32x16<A> d[kBlocks];
    F32x16<A> m[kBlocks];
  };
  template <class U>
  struct Scales {
    using Type = Simple;
  };
  template <SubScaled U>
  struct Scales<U> {
    using Type = KScales<A, U>;
  };

  alignas(64) std::byte codes[kWords * kPanels * 64];
  typename Scales<T>::Type scales[kPanels];

  LLM_INLINE const std::byte* word_at(int w, int panel) const {
    return codes + (w * kPanels + panel) * 64;
  }

  /// Unpacks `blocks` consecutive blocks (1 .. kBlocks) of one panel.
  LLM_INLINE void read(const std::byte* block, int blocks, int panel) {
    for (int b = 0; b < blocks; ++b, block += kPanelRows * T::kBytes) {
      static_for<T::kGroups>([&]<int g>() LLM_INLINE_LAMBDA {
        Quad<A> quads[T::kGroupQuads];
        T::template quads<A, g>(block, quads);
        for (int q = 0; q < T::kGroupQuads; ++q) {
          const int first = b * (T::kWeights / 4) + 4 * T::quad_at(g, q);
          for (int i = 0; i < 4; ++i) {
            store_i32(codes + ((first + i) * kPanels + panel) * 64, quads[q][i]);
          }
        }
      });
      if constexpr (SubScaled<T>) {
        scales[panel].read(block);
      } else {
        scales[panel].d[b] = T::template scale<A>(block);
        if constexpr (T::kMin) scales[panel].m[b] = T::template min<A>(block);
      }
    }
  }
};

#define LLM_TILE                                      \
  _Pragma("GCC unroll 2") for (int p = 0; p < P; ++p) \
      _Pragma("GCC unroll 8") for (int n = 0; n < N; ++n)

/// Adds kWords words of codes, from word `first`, to the sums of one register tile: P panels by N
/// tokens, whose activations are words from x_first on.
template <class A, class T, int P, int N, int kWords, class U, class X>
LLM_INLINE void add_words(I32x16<A> (&sum)[P][N], const U& u, int first, const X* x, int x_first) {
  using Dot = IntDot<A, T>;
  static_assert(kWords <= Dot::kRunWords);
  _Pragma("GCC unroll 8") for (int w = 0; w < kWords; ++w) {
    I32x16<A> codes[P];
    for (int p = 0; p < P; ++p) codes[p] = load_i32<A>(u.word_at(first + w, p));
    _Pragma("GCC unroll 8") for (int n = 0; n < N; ++n) {
      const auto word = broadcast_word<A>(x[n].qs + 4 * (x_first + w));
      for (int p = 0; p < P; ++p) sum[p][n] = Dot::step(sum[p][n], codes[p], word);
    }
  }
}

// Tiles stay out of line: inlined by g++ 12, a batch of three tokens takes a fifth longer on AVX2.

/// K-quants: one super-block. acc is [token][P][16].
template <class A, class T, int P, int N>
[[gnu::noinline]] void tile(const Unpacked<A, T, P>& u, int, const llm::KernelQ8K* x, std::size_t,
                            float* acc) requires(SubScaled<T>) {
  using Dot = IntDot<A, T>;
  constexpr int kSubWords = 64 / T::kSubs;
  constexpr int kRun = Dot::kRunWords < kSubWords ? Dot::kRunWords : kSubWords;
  I32x16<A> isum[P][N];
  LLM_TILE isum[p][n] = broadcast_i32<A>(0);
  for (int s = 0; s < T::kSubs; ++s) {
    _Pragma("GCC unroll 8") for (int w = 0; w < kSubWords; w += kRun) {
      I32x16<A> sum[P][N];
      LLM_TILE sum[p][n] = sub_start<A, T>(x[n], s);
      add_words<A, T, P, N, kRun>(sum, u, s * kSubWords + w, x, s * kSubWords + w);
      LLM_TILE isum[p][n] = Dot::finish(isum[p][n], sum[p][n], u.scales[p].scale[s]);
    }
  }
  LLM_TILE {
    float* out = acc + (n * P + p) * 16;
    store_f32(out, u.scales[p].accumulate(load_f32<A>(out), isum[p][n], x[n]));
  }
}

/// One scale per block: `blocks` consecutive blocks. Blocks of a token are x_stride elements apart.
template <class A, class T, int P, int N>
[[gnu::noinline]] void tile(const Unpacked<A, T, P>& u, int blocks,
                            const typename ActivationOf<T>::Block* x, std::size_t x_stride,
                            float* acc) requires(!SubScaled<T>) {
  using Dot = IntDot<A, T>;
  constexpr int kParts = ActivationOf<T>::kParts;
  constexpr int kPartWords = T::kWeights / kParts / 4;
  F32x16<A> sums[P][N];
  LLM_TILE sums[p][n] = load_f32<A>(acc + (n * P + p) * 16);
  for (int part = 0; part < blocks * kParts; ++part, x += x_stride) {
    I32x16<A> isum[P][N];
    LLM_TILE isum[p][n] = offset_start<A, T>(x[n]);
    for (int w = 0; w < kPartWords; w += 8) {
      constexpr int kRun = Dot::kRunWords < 8 ? Dot::kRunWords : 8;
      _Pragma("GCC unroll 8") for (int r = w; r < w + 8; r += kRun) {
        I32x16<A> sum[P][N];
        LLM_TILE sum[p][n] = Dot::begin(isum[p][n]);
        add_words<A, T, P, N, kRun>(sum, u, part * kPartWords + r, x, r);
        LLM_TILE isum[p][n] = Dot::finish(isum[p][n], sum[p][n]);
      }
    }
    LLM_TILE {
      F32x16<A> m = broadcast_f32<A>(0);
      if constexpr (T::kMin) m = u.scales[p].m[part / kParts];
      sums[p][n] =
          accumulate_simple<A, T>(sums[p][n], isum[p][n], u.scales[p].d[part / kParts], m, x[n]);
    }
  }
  LLM_TILE store_f32(acc + (n * P + p) * 16, sums[p][n]);
}

/// All tokens of a batch by tiles of kTileTokens, the remainder by a smaller one.
/// @param done  called with begin and end of the tokens that a tile was of
template <class A, class T, int P, int N = A::kTileTokens, class X, class Done>
LLM_INLINE void all_tokens(const Unpacked<A, T, P>& u, int blocks, const X* x, std::size_t n_tokens,
                           float* acc, Done&& done) {
  std::size_t t = 0;
  for (; t + N <= n_tokens; t += N) {
    tile<A, T, P, N>(u, blocks, x + t, n_tokens, acc + t * P * kPanelRows);
    done(t, t + N);
  }
  if constexpr (N > 1) {
    if (t < n_tokens) {
      const auto rest = [&]<int M>(auto&& self) {
        if constexpr (M > 0) {
          if (n_tokens - t == M) {
            tile<A, T, P, M>(u, blocks, x + t, n_tokens, acc + t * P * kPanelRows);
          } else {
            self.template operator()<M - 1>(self);
          }
        }
      };
      rest.template operator()<N - 1>(rest);
      done(t, n_tokens);
    }
  }
}

// ---- drivers

/// Writes one panel's products of one token to y, or adds them; `rows` of its 16 exist.
template <class A>
LLM_INLINE void write_row(float* y, const F32x16<A>& product, std::size_t rows, bool add) {
  if (rows == kPanelRows) {
    store_f32(y, add ? load_f32<A>(y) + product : product);
    return;
  }
  alignas(64) float lanes[kPanelRows];
  store_f32(lanes, product);
  for (std::size_t r = 0; r < rows; ++r) y[r] = add ? y[r] + lanes[r] : lanes[r];
}

LLM_INLINE std::size_t rows_in_panel(const llm::MatmulArgs& args, std::size_t panel) {
  const std::size_t rest = args.n_rows - panel * kPanelRows;
  return rest < kPanelRows ? rest : kPanelRows;
}

/// Starts reading `n_bytes` from `memory` into L2.
LLM_INLINE void prefetch(const std::byte* memory, std::size_t n_bytes) {
  for (std::size_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(memory + i, 0, 2);
}

/// The part of args.next that belongs to `block`; nullptr: nothing is to be asked for.
LLM_INLINE const std::byte* next_of(const llm::MatmulArgs& args, const std::byte* block) {
  const auto at = static_cast<std::size_t>(block - args.panels);
  return at < args.next_end ? args.next + at : nullptr;
}

/// Asks for as much of args.next as is being read at `block`.
LLM_INLINE void ask_for_next(const llm::MatmulArgs& args, const std::byte* block,
                             std::size_t n_bytes) {
  if (const std::byte* const next = next_of(args, block)) prefetch(next, n_bytes);
}

/// What direct_block() calls between the parts of a block: asks for as many lines as the part has,
/// so that they do not wait for each other (a core has few places for lines on their way).
struct AskAhead {
  const std::byte* near;  ///< into L1; nullptr: nothing is to be asked for
  const std::byte* far;   ///< into L2; likewise
  std::size_t n_bytes;    ///< of a block

  LLM_INLINE void operator()(int part, int n_parts) const {
    const std::size_t n_lines = (n_bytes + 63) / 64;
    const std::size_t begin = n_lines * part / n_parts;
    const std::size_t end = n_lines * (part + 1) / n_parts;
    if (near != nullptr) {
      for (std::size_t i = begin; i < end; ++i) __builtin_prefetch(near + 64 * i, 0, 3);
    }
    if (far != nullptr) prefetch(far + 64 * begin, 64 * (end - begin));
  }
};

/// The blocks of a panel as T reads them: here as they lie there.
template <class T>
struct PanelBlocks {
  static constexpr std::size_t bytes = kPanelRows * T::kBytes;  ///< of 16 rows

  explicit PanelBlocks(const llm::MatmulArgs&) {}
  LLM_INLINE const std::byte* operator()(const std::byte* block) { return block; }
};

template <class A, class T>
void matmul_one_token(const llm::MatmulArgs& args) {
  using X = typename ActivationOf<T>::Block;
  const auto* x = static_cast<const X*>(args.x);
  PanelBlocks<T> blocks(args);
  const std::size_t n_blocks = args.n_cols / T::kWeights;
  const std::size_t block_bytes = blocks.bytes;
  const std::size_t panel_bytes = n_blocks * block_bytes;
  for (std::size_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    const std::byte* block = args.panels + panel * panel_bytes;
    auto acc = broadcast_f32<A>(0);
    for (std::size_t b = 0; b < n_blocks; ++b, block += block_bytes) {
      const AskAhead ask{args.near > 0 ? block + args.near : nullptr, next_of(args, block),
                         block_bytes};
      acc = direct_block<A, T>(blocks(block), x + b * ActivationOf<T>::kParts, 1, acc, ask);
    }
    write_row(args.y + panel * kPanelRows, acc, rows_in_panel(args, panel), args.add);
  }
}

/// 2 .. kFewTokens tokens: read as for one, since memory is the limit. Unpacked for two at a time.
template <class A, class T>
void matmul_few_tokens(const llm::MatmulArgs& args) {
  using X = typename ActivationOf<T>::Block;
  const auto* x = static_cast<const X*>(args.x);
  const std::size_t n_blocks = args.n_cols / T::kWeights;
  constexpr std::size_t kBlockBytes = PanelBlocks<T>::bytes;
  for (std::size_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    const std::byte* block = args.panels + panel * n_blocks * kBlockBytes;
    F32x16<A> acc[llm::kFewTokens];
    for (auto& sum : acc) sum = broadcast_f32<A>(0);
    for (std::size_t b = 0; b < n_blocks; ++b, block += kBlockBytes) {
      AskAhead ask{args.near > 0 ? block + args.near : nullptr, next_of(args, block), kBlockBytes};
      const X* const at = x + b * ActivationOf<T>::kParts * args.n_tokens;
      for (std::size_t n = 0; n < args.n_tokens; n += 2) {
        const std::size_t m = n + 1 < args.n_tokens ? n + 1 : n;  // an odd one twice
        const F32x16<A> first = direct_block<A, T>(block, at + n, args.n_tokens, acc[n], ask);
        ask = {};
        const F32x16<A> second = direct_block<A, T>(block, at + m, args.n_tokens, acc[m]);
        acc[m] = second;
        acc[n] = first;
      }
    }
    for (std::size_t n = 0; n < args.n_tokens; ++n) {
      write_row(args.y + n * args.y_stride + panel * kPanelRows, acc[n], rows_in_panel(args, panel),
                args.add);
    }
  }
}

/// U holds unpacked blocks of P panels. Where the last tile has fewer, its other panels are the
/// last one once more, and are not written.
template <class A, class T, int P, class U>
void matmul_batch(const llm::MatmulArgs& args) {
  using X = typename ActivationOf<T>::Block;
  static_assert(P <= static_cast<int>(llm::contract::kMaxTilePanels));
  PanelBlocks<T> as_read(args);
  const std::size_t n_blocks = args.n_cols / T::kWeights;
  const std::size_t block_bytes = as_read.bytes;
  U u;
  auto* acc = reinterpret_cast<float*>(args.workspace);
  std::memset(acc, 0, args.n_tokens * P * kPanelRows * sizeof(float));
  for (std::size_t panel = args.panel_begin; panel < args.panel_end; panel += P) {
    const std::size_t rest = args.panel_end - panel;
    const std::size_t n_panels = rest < P ? rest : P;
    for (std::size_t b = 0; b < n_blocks; b += U::kBlocks) {
      const auto n_at = [&](std::size_t first) {
        return n_blocks - first < U::kBlocks ? n_blocks - first : U::kBlocks;
      };
      const std::size_t blocks = n_at(b);
      const bool last = b + blocks == n_blocks;
      for (std::size_t p = 0; p < P; ++p) {
        const std::size_t at_panel = panel + (p < n_panels ? p : n_panels - 1);
        const std::byte* block = args.panels + (at_panel * n_blocks + b) * block_bytes;
        u.read(as_read(block), static_cast<int>(blocks), static_cast<int>(p));
        const std::size_t next = last ? P * n_blocks - b : blocks;
        prefetch(block + next * block_bytes, n_at(last ? 0 : b + blocks) * block_bytes);
        ask_for_next(args, block, blocks * block_bytes);
      }
      // A tile's products are written while the next one is summed: their lines are seldom in L2.
      // What is left are zeros, for the next panels.
      const auto write = [&](std::size_t begin, std::size_t end) {
        if (!last) return;
        for (std::size_t t = begin; t < end; ++t) {
          for (std::size_t p = 0; p < P; ++p) {
            float* const sum = acc + (t * P + p) * kPanelRows;
            if (p < n_panels) {
              write_row(args.y + t * args.y_stride + (panel + p) * kPanelRows, load_f32<A>(sum),
                        rows_in_panel(args, panel + p), args.add);
            }
            store_f32(sum, broadcast_f32<A>(0));
          }
        }
      };
      all_tokens<A, T, P>(
          u, static_cast<int>(blocks),
          static_cast<const X*>(args.x) + b * ActivationOf<T>::kParts * args.n_tokens,
          args.n_tokens, acc, write);
    }
  }
}

/// All panels, A::kTilePanels at a time.
template <class A, class T, template <class, class, int> class U>
void matmul_batches(const llm::MatmulArgs& args) {
  constexpr int P = A::kTilePanels;
  matmul_batch<A, T, P, U<A, T, P>>(args);
}

template <class A, class T>
void matmul_type(const llm::MatmulArgs& args) {
  if (args.n_tokens == 1) return matmul_one_token<A, T>(args);
  if constexpr (!SubScaled<T>) {  // whose unpacking takes longer than reading
    if (args.n_tokens <= llm::kFewTokens) return matmul_few_tokens<A, T>(args);
  }
  matmul_batches<A, T, Unpacked>(args);
}

}  // namespace
