#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_features.h"
#include "quant/formats/block_traits.h"
#include "quant/kernels/kv_layout.h"
#include "quant/numerics/activation.h"
#include "quant/numerics/contract.h"

namespace llm {

/// 256 activations as the kernels read them: what BlockQ8_K holds, with the sums arranged for pair
/// products. In memory block-major: block b of token t is element b * n_tokens + t.
struct KernelQ8K {
  static constexpr std::size_t kSize = contract::kSuperBlock;
  std::int8_t qs[kSize];
  float d;                           ///< scale
  std::int32_t sum;                  ///< of all codes
  std::int16_t sums32[kSize / 32];   ///< of each 32 codes
  std::int16_t sums16[kSize / 16];   ///< of each 16 codes
  std::int32_t reserved[2];          ///< zero
  std::int32_t minus32[kSize / 16];  ///< -32 times the sum of each 16 codes
};
static_assert(sizeof(KernelQ8K) == 384);

/// 32 activations as the kernels read them, block-major like KernelQ8K.
struct KernelQ8x32 {
  static constexpr std::size_t kSize = contract::kBlock;
  std::int8_t qs[kSize];
  float d;
  std::int32_t sum;  ///< of all codes
};
static_assert(sizeof(KernelQ8x32) == 40);

/// Columns of a panel that are unpacked at a time for a batch, for types with one scale per block:
/// few enough that L1 also holds a tile's activations, and so many that f32 accumulators are seldom
/// spilled to memory.
inline constexpr std::size_t kUnpackedColumns = 768;

/// Which products of one packed matrix to compute: panels [panel_begin, panel_end), all tokens.
struct MatmulArgs {
  WeightType type;
  bool dequantize;  ///< --compute f32: x is f32 and weights are dequantized
  /// Address of panel 0, which need not exist: only the panels to compute are read.
  const std::byte* panels;
  std::size_t n_rows;
  std::size_t n_cols;
  std::size_t panel_begin;
  std::size_t panel_end;
  const void* x;  ///< KernelQ8K, KernelQ8x32 (block-major), or f32 (n_tokens, n_cols)
  std::size_t n_tokens;
  float* y;  ///< (n_tokens, y_stride); element (t, r) is row r of the matrix
  std::size_t y_stride;
  bool add;              ///< y = y + product instead of y = product
  std::byte* workspace;  ///< matmul_workspace_bytes(n_tokens), 64-byte aligned, this thread's own
  /// Memory that will be read next: while panels[i] is read, next[i] is prefetched into L2, for i <
  /// next_end, and of one token panels[i + near] into L1 (0: nothing). Never changes y.
  const std::byte* next;
  std::size_t next_end;
  std::size_t near;
};

/// Bytes of MatmulArgs::workspace for a batch of n_tokens.
std::size_t matmul_workspace_bytes(std::size_t n_tokens);

/// Causal attention of the query heads that share one KV head, for a run of tokens and chunks of
/// keys. A token whose window has none of the chunks' keys is left out. Strides are in floats. A
/// partial result of one (token, head) is {m, l, o[head_dim]}.
struct AttendArgs {
  const float* q;        ///< first token's first query head of the group
  std::size_t q_stride;  ///< between tokens
  /// Chunk c of 256 keys lies in page c, keys and values from these offsets on, as `layout` says.
  const std::byte* const* pages;
  std::size_t keys_offset;
  std::size_t values_offset;
  KvLayout layout;
  std::size_t n_heads;  ///< query heads in the group
  std::size_t n_tokens;
  std::size_t first_position;  ///< of token 0
  std::size_t window;          ///< keys that a token sees, its own the last; 0: all
  std::size_t chunk_begin;     ///< chunks of contract::kAttentionChunk positions
  std::size_t chunk_end;
  float scale;           ///< of scores
  float cap;             ///< contract::soft_cap() of them; 0: none
  float* partial;        ///< (n_tokens, n_heads, 2 + head_dim), overwritten
  std::byte* workspace;  ///< attend_workspace_bytes(), 64-byte aligned, this thread's own
};

/// Bytes of AttendArgs::workspace for up to n_rows = n_tokens * n_heads.
std::size_t attend_workspace_bytes(const KvLayout& layout, std::size_t n_rows);

/// A causal convolution of one token, each channel by itself (docs/numerics.md).
struct ConvolveArgs {
  const float* const* rows;  ///< (width) of the channels, those of the token itself the last
  const float* weights;      ///< (width, stride)
  std::size_t stride;
  std::size_t width;
  std::size_t n;      ///< channels
  const float* bias;  ///< (n), added to the sums, or nullptr
  bool silu;          ///< of the sums
  float* y;           ///< (n), overwritten
};

/// A run of tokens through up to 16 columns of the state of a head of a Gated DeltaNet, or of
/// Mamba-2.
struct DeltaRuleArgs {
  const float* q;  ///< the first token's head, (k_dim); k likewise
  const float* k;
  const float* v;           ///< the first token's columns
  std::size_t stride;       ///< in floats, between tokens of q, k and v
  const float* decay;       ///< of the first token; beta likewise
  const float* beta;        ///< what v, or its distance from what k finds, is multiplied by
  std::size_t gate_stride;  ///< between tokens of decay and beta
  float* state;             ///< (k_dim, 16), 64-byte aligned
  float* out;               ///< (n_tokens, n_columns), overwritten
  std::size_t out_stride;   ///< between tokens
  std::size_t k_dim;
  std::size_t n_columns;  ///< the others of `state` stay as they are, where they are 0
  std::size_t n_tokens;
  bool finds = true;  ///< k finds what is there before v comes; false: Mamba-2
  float past = 0;     ///< without `finds`: of v, what is added to the output
};

/// Weights with one scale a block are read for up to so many tokens as for one.
inline constexpr std::size_t kFewTokens = 4;
/// Every fast path, once per instruction set; all tables give equal bits (docs/numerics.md).
struct KernelTable {
  Isa isa;

  void (*matmul)(const MatmulArgs& args);

  /// Quantizes n activations of token t; out is block 0 of that token, further blocks n_tokens
  /// apart.
  void (*quantize_q8k)(const float* x, std::size_t n, KernelQ8K* out, std::size_t n_tokens);
  void (*quantize_q8x32)(const float* x, std::size_t n, KernelQ8x32* out, std::size_t n_tokens);

  /// y = (x / rms(x)) * weight; y may be x.
  void (*rms_norm)(const float* x, const float* weight, std::size_t n, float eps, float* y);
  /// Rotates, in place, those of x's elements [begin, end) that are in the `pairs` leading pairs of
  /// their head; x is a token's heads, head_dim elements each. begin, end and head_dim are even.
  void (*rope)(float* x, std::size_t begin, std::size_t end, std::size_t head_dim, const float* cos,
               const float* sin, std::size_t pairs);
  /// gate[i] = contract::activate(kind, gate[i], up[i]).
  void (*activate)(Activation kind, float* gate, const float* up, std::size_t n);
  /// x[i] = contract::soft_cap(x[i], cap).
  void (*soft_cap)(float* x, std::size_t n, float cap);
  /// y[i] = fma(a, x[i], y[i]).
  void (*axpy)(float a, const float* x, std::size_t n, float* y);
  /// y[i] = f32_to_f16(x[i]) for any bits of x: nearest even, NaN kept and made quiet.
  void (*to_half)(const float* x, std::size_t n, std::uint16_t* y);
  /// y[i] = exp((x[i] - largest) / divisor), each step rounded; y may be x. @pre no NaN
  void (*exp_distances)(const float* x, std::size_t n, float largest, float divisor, float* y);

  void (*convolve)(const ConvolveArgs& args);
  /// x becomes (x / |x|) * factor (docs/numerics.md).
  void (*unit_length)(float* x, std::size_t n, float factor);
  void (*delta_rule)(const DeltaRuleArgs& args);

  void (*attend)(const AttendArgs& args);
  /// Adds the partial result `later` to `sum` (both {m, l, o[head_dim]}).
  void (*merge)(float* sum, const float* later, std::size_t head_dim);
  /// context = o / l.
  void (*finish)(const float* partial, std::size_t head_dim, float* context);
};

/// The table of `isa`, or nullptr if this build lacks it (another architecture). Its functions
/// may be called if isa_supported(isa).
const KernelTable* kernel_table(Isa isa);

}  // namespace llm
