#ifndef LLM_ENGINE_MODEL_HYPER_PARAMETERS_H_
#define LLM_ENGINE_MODEL_HYPER_PARAMETERS_H_

#include <cstddef>
#include <string>

#include "base/result.h"
#include "engine/gguf/gguf_file.h"

namespace llm {

/// The shape of a Llama, checked for consistency when it was read from a GGUF's `llama.*` metadata.
struct HyperParameters {
  std::string architecture;     ///< "llama"
  std::size_t n_layers = 0;     ///< llama.block_count
  std::size_t d_model = 0;      ///< llama.embedding_length
  std::size_t d_ff = 0;         ///< llama.feed_forward_length
  std::size_t n_heads = 0;      ///< llama.attention.head_count
  std::size_t n_kv_heads = 0;   ///< llama.attention.head_count_kv; divides n_heads
  std::size_t head_dim = 0;     ///< llama.attention.key_length, default d_model / n_heads
  std::size_t n_vocab = 0;      ///< rows of token_embd.weight
  std::size_t context = 0;      ///< llama.context_length: positions the model was trained for
  std::size_t rope_dims = 0;    ///< llama.rope.dimension_count: leading dims that rotate; even
  float rope_theta = 10000.0F;  ///< llama.rope.freq_base
  float rope_scale = 1.0F;      ///< positions are divided by it (llama.rope.scaling.factor, linear)
  float norm_eps = 1e-5F;       ///< llama.attention.layer_norm_rms_epsilon

  std::size_t q_rows() const { return n_heads * head_dim; }
  std::size_t kv_rows() const { return n_kv_heads * head_dim; }
};

/// Reads and cross-checks the `llama.*` metadata against itself and against the blocks, embedding
/// and vocabulary that the file holds, before anything is allocated by it.
/// Errors: kMalformed for values that contradict each other or the file; kUnsupported for another
/// architecture, mixtures of experts, per-layer head counts, RoPE scaling other than linear.
Result<HyperParameters> read_hyper_parameters(const GgufFile& gguf);

}  // namespace llm

#endif  // LLM_ENGINE_MODEL_HYPER_PARAMETERS_H_
