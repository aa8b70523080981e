#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/gguf/gguf_writer.h"
#include "engine/model/layer_spec.h"
#include "tools/llmquant/recipe.h"

namespace llm {

/// Llama 3's scaling of the RoPE frequencies, which a file holds as rope_freqs.weight.
struct Llama3Scaling {
  double factor = 0;  ///< 0: no scaling
  double low_turns = 1;
  double high_turns = 4;
  double original_context = 8192;
};

/// YaRN, which a file's keys describe.
struct YarnScaling {
  float factor = 0;  ///< 0: none
  std::uint32_t original_context = 0;
};

/// What models of one family have in common.
struct SyntheticFamily {
  std::string_view architecture = "llama";
  std::string_view pre_tokenizer = {};  ///< of a byte-level BPE vocabulary; empty: SentencePiece
  float rope_theta = 10000.0F;
  float norm_eps = 1e-5F;
  Llama3Scaling llama3 = {};
  YarnScaling yarn = {};
  /// Of the layers that have one in the architecture; 0: none is written.
  std::uint32_t window = 0;
  std::uint32_t n_experts = 0;
  std::uint32_t n_experts_used = 0;
  std::uint32_t d_shared = 0;  ///< FfnSpec::d_shared
  DeltaNetSpec delta =
      {};  ///< of all layers but each fourth, of Mamba-2 each third; none without heads
  std::uint32_t conv_width = 0;    ///< of short convolutions, all layers but each third; 0: none
  std::uint32_t d_dense = 0;       ///< of the first layer, which then has no experts
  std::uint32_t head_of_rope = 1;  ///< one part of so many of a head rotates
  bool mtp = false;                ///< a block after the layers predicts further tokens
  // Of gemma4, in which all but each `full_period`-th layer have a window:
  std::uint32_t window_head_dim = 0;  ///< 0: it has nothing of this
  std::uint32_t full_period = 3;
  bool has_values = false;       ///< layers without a window, too; else their values are the keys
  std::uint32_t n_shared = 0;    ///< layers without keys and values of their own, the last
  bool shared_are_wide = false;  ///< their feed-forward has twice the width
  std::uint32_t d_input = 0;     ///< LayerSpec::d_input
};

/// The shape of a made-up model of the Llama family. Weights are seeded noise of a trained model's
/// size: a synthetic model runs as fast as a real one of its shape, and says nothing worth reading.
struct SyntheticShape {
  std::string_view name;
  std::uint64_t d_model = 0;
  std::uint64_t d_ff = 0;
  std::uint64_t n_layers = 0;
  std::uint64_t n_heads = 0;
  std::uint64_t n_kv_heads = 0;
  std::uint64_t head_dim = 0;
  std::uint64_t n_vocab = 0;  ///< at least 400: specials, bytes and single characters
  std::uint64_t context = 0;
  bool tied_output = false;
  SyntheticFamily family = {};
};

/// "tinyllama", "llama-3.2-1b", "qwen2.5-0.5b", "qwen3.5-0.8b", "gemma-3-1b", "gemma-4-e2b",
/// "phi-3-mini" (the exact shapes of TinyLlama-1.1B, Llama-3.2-1B, Qwen2.5-0.5B, Qwen3.5-0.8B,
/// Gemma-3-1B, Gemma 4 E2B and Phi-3-mini-4k), "tinyllama-2l" (two layers of it) and small odd
/// ones: "odd80", "odd96" (head_dim 80 and 96, rows that are no multiple of 16), "mqa" (one KV
/// head), "tied", "qwen2-small" (biases), "qwen3-small" (head norms, head_dim 48), "gemma3-small"
/// (a window of 24, norms after both halves), "gemma4-small" (unlike heads, shared keys, layers'
/// own inputs), "gemma4moe-small" (a feed-forward beside experts), "qwen3moe-small" and
/// "gpt-oss-small" (6 of 10 experts) and "phi3-small" (fused matrices), "qwen3.5-small" and
/// "qwen3.5moe-small" (Gated DeltaNets), "qwen3.5-mtp-small" (with a block for further tokens, as
/// the large ones have), "lfm2-small" and "lfm2moe-small" (short convolutions; experts chosen by
/// sigmoids); "lfm2-1.2b" (its sizes); "granitehybrid-small" and "granitehybridmoe-small"
/// (Mamba-2), "granite-4.0-h-1b-8l"; "laguna-small" (a gate on attention, experts and a shared
/// one); "qwen3-30b-a3b-4l", "gpt-oss-20b-4l", "qwen3.5-9b-8l" and "qwen3.5-35b-a3b-4l", some
/// layers of these; or nothing.
std::optional<SyntheticShape> find_synthetic_shape(std::string_view name);
/// The names above, for messages.
std::string synthetic_shape_names();

struct SyntheticOptions {
  SyntheticShape shape;
  const Recipe* recipe = nullptr;  ///< as llmquant's TYPE; rows that do not fit get its fallback
  std::uint64_t seed = 1;
  int threads = 1;  ///< never changes a byte
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

/// Writes the model front to back. Equal options give equal bytes.
/// Cost: memory of one tensor in its type; time of quantizing every weight once.
Status write_synthetic_model(const SyntheticOptions& options, const ByteSink& sink);

/// Adds the tokenizer.ggml.* entries of a made-up SentencePiece BPE vocabulary of `n_vocab` tokens:
/// <unk>, <s>, </s>, the 256 bytes, single characters, then pieces that each join two earlier ones
/// (so that every piece can be reached by merges), in falling score.
/// @pre n_vocab >= 400
void add_synthetic_vocab(GgufWriter& writer, std::uint64_t n_vocab, std::uint64_t seed);

/// The same of a made-up byte-level BPE vocabulary: the 256 characters of GPT-2's alphabet, pieces
/// that each join two earlier ones, and their merges in that order; last <|begin_of_text|> and
/// <|end_of_text|>.
/// @param pre_tokenizer  tokenizer.ggml.pre
/// @pre n_vocab >= 400
void add_synthetic_byte_vocab(GgufWriter& writer, std::uint64_t n_vocab, std::uint64_t seed,
                              std::string_view pre_tokenizer);

}  // namespace llm
