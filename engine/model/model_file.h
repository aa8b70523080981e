#ifndef LLM_ENGINE_MODEL_MODEL_FILE_H_
#define LLM_ENGINE_MODEL_MODEL_FILE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/hyper_parameters.h"
#include "quant/block_traits.h"
#include "tokenizer/vocab_spec.h"

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

/// A GGUF opened as a Llama: mapped, parsed, checked, nothing copied yet.
struct ModelFile {
  MappedFile file;
  GgufFile gguf;
  HyperParameters config;
  VocabSpec vocab;
  ModelTensors tensors;
  std::string name;                   ///< general.name, or the file's base name
  std::string chat_template;          ///< tokenizer.chat_template, may be empty
  std::vector<std::string> warnings;  ///< one line each, for the tool to log
};

struct ModelFileOptions {
  bool strict = false;  ///< trailing bytes and unknown tensors are errors instead of warnings
};

/// Opens `path` and checks everything that can be checked without running the model: format,
/// metadata, vocabulary, presence, shapes and types of tensors. Scales are checked for NaN/Inf when
/// weights are packed. Errors: docs/bad_input.md, each naming file, field, value and rule.
Result<ModelFile> open_model_file(const std::string& path, const ModelFileOptions& options = {});

/// The vocabulary alone; works on vocab-only GGUFs (no tensors). Warnings are appended to
/// `warnings`.
Result<VocabSpec> vocab_from_gguf(const GgufFile& gguf, std::vector<std::string>& warnings);

}  // namespace llm

#endif  // LLM_ENGINE_MODEL_MODEL_FILE_H_
