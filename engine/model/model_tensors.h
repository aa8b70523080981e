#ifndef LLM_ENGINE_MODEL_MODEL_TENSORS_H_
#define LLM_ENGINE_MODEL_MODEL_TENSORS_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/hyper_parameters.h"
#include "quant/formats/block_traits.h"

namespace llm {

/// One tensor of the file as a matrix: `n_rows` outputs (GGUF ne[1]) by `n_cols` inputs (ne[0],
/// contiguous). A vector has n_rows = 1. The bytes belong to the file's mapping.
struct TensorView {
  std::string name;
  WeightType type = WeightType::kF32;
  std::size_t n_rows = 0;
  std::size_t n_cols = 0;
  std::span<const std::byte> data;
};

/// The tensors of one decoder block under their GGUF roles (blk.N.*).
struct LayerTensors {
  TensorView attn_norm;    ///< (d_model), f32
  TensorView attn_q;       ///< (n_heads * head_dim, d_model)
  TensorView attn_k;       ///< (n_kv_heads * head_dim, d_model)
  TensorView attn_v;       ///< (n_kv_heads * head_dim, d_model)
  TensorView attn_output;  ///< (d_model, n_heads * head_dim)
  TensorView ffn_norm;     ///< (d_model), f32
  TensorView ffn_gate;     ///< (d_ff, d_model)
  TensorView ffn_up;       ///< (d_ff, d_model)
  TensorView ffn_down;     ///< (d_model, d_ff)
};

/// Every tensor the forward pass needs, with checked shapes and types.
struct ModelTensors {
  TensorView token_embd;  ///< (n_vocab, d_model)
  std::vector<LayerTensors> layers;
  TensorView output_norm;                ///< (d_model), f32
  TensorView output;                     ///< (n_vocab, d_model); token_embd's view when tied
  bool tied_output = false;              ///< the file has no output.weight
  std::optional<TensorView> rope_freqs;  ///< (rope_dims / 2) divisors of the frequencies, f32
};

/// Finds every tensor of a Llama in `gguf` and checks shapes and types against `config`.
/// Tensors that would change the result but are not computed here (biases, experts, ...) are
/// refused; others that no Llama has are counted in a warning, or refused when `strict`.
/// Errors: kMalformed for absent or misshapen tensors, kUnsupported for types and refused tensors.
Result<ModelTensors> bind_tensors(const GgufFile& gguf, const HyperParameters& config, bool strict,
                                  std::vector<std::string>& warnings);

}  // namespace llm

#endif  // LLM_ENGINE_MODEL_MODEL_TENSORS_H_
