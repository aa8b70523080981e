#ifndef LLM_ENGINE_MODEL_ARCHITECTURE_H_
#define LLM_ENGINE_MODEL_ARCHITECTURE_H_

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/gguf/gguf_file.h"

namespace llm {

/// How GGUF calls a hyper-parameter, after "{architecture}.". The values here are the format's own
/// (ggml's docs/gguf.md); an architecture that differs names its own.
struct HyperParameterKeys {
  std::string_view n_layers = "block_count";
  std::string_view d_model = "embedding_length";
  std::string_view d_ff = "feed_forward_length";
  std::string_view n_vocab = "vocab_size";
  std::string_view context = "context_length";
  std::string_view n_heads = "attention.head_count";
  std::string_view n_kv_heads = "attention.head_count_kv";
  std::string_view head_dim = "attention.key_length";
  std::string_view value_dim = "attention.value_length";
  std::string_view norm_eps = "attention.layer_norm_rms_epsilon";
  std::string_view rope_dims = "rope.dimension_count";
  std::string_view rope_theta = "rope.freq_base";
  std::string_view rope_scaling = "rope.scaling.type";
  std::string_view rope_scale = "rope.scaling.factor";
  std::string_view old_rope_scale = "rope.scale_linear";  ///< of older files
};

/// Whether models have a tensor.
enum class Need {
  kRequired,
  kOptional,
  kAbsent,  ///< none may: where the tensor is there, the file is not what is computed here
};

/// How an architecture differs from a row of kTensorRoles.
struct RoleNeed {
  std::string_view role;  ///< TensorRole::name
  Need need;
};

/// A key that must be absent or 0: another value asks for what is not computed here.
struct RefusedKey {
  std::string_view key;  ///< after "{architecture}."
  std::string_view why;
};

/// A value of general.architecture that is read, and all in which it differs from the others.
struct Architecture {
  std::string_view name;  ///< also the first part of its keys
  HyperParameterKeys keys = {};
  float rope_theta = 10000.0F;  ///< where the file gives none
  std::span<const RefusedKey> refused_keys = {};
  std::span<const RoleNeed> roles = {};  ///< the others are as kTensorRoles says

  /// "llama.block_count" of "block_count".
  std::string key(std::string_view suffix) const;
};

std::span<const Architecture> all_architectures();
/// The row of that name, or nullptr.
const Architecture* find_architecture(std::string_view name);

/// The tensor called `name`, which every model of the architecture has.
/// Errors: kMalformed when it is absent.
Result<const GgufTensor*> require_tensor(const GgufFile& gguf, const Architecture& architecture,
                                         std::string_view name);

}  // namespace llm

#endif  // LLM_ENGINE_MODEL_ARCHITECTURE_H_
