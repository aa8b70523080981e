#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/architecture.h"

namespace llm {

/// How YaRN spares fast pairs: RopeSpec::scale is that of pairs from `high` on, pairs up to `low`
/// have none.
struct YarnRamp {
  double low;
  double high;
};

/// How RoPE turns heads (engine/model/rope.h).
struct RopeSpec {
  std::size_t dims = 0;               ///< leading dims of a head that rotate; even; 0: none does
  float theta = 10000.0F;             ///< rope.freq_base
  float scale = 1.0F;                 ///< positions are divided by it (rope.scaling.factor)
  double magnitude = 1;               ///< of cosines and sines (rope.scaling.attn_factor, YaRN)
  std::optional<YarnRamp> yarn = {};  ///< none: of every pair
};

/// What may differ from layer to layer. What else a layer does shows in the tensors it has: biases,
/// norms of heads.
struct LayerSpec {
  std::size_t rope = 0;    ///< index in HyperParameters::ropes
  std::size_t window = 0;  ///< positions that one attends to, itself the last; 0: all before it
  Activation activation = Activation::kSwiGlu;
};

/// The shape of a model, checked for consistency when it was read from a GGUF's metadata. The keys
/// are HyperParameterKeys, of the architecture.
struct HyperParameters {
  const Architecture* architecture = nullptr;  ///< never nullptr in what a file gave
  std::size_t n_layers = 0;                    ///< block_count; layers.size() in what is read
  std::size_t d_model = 0;                     ///< embedding_length
  std::size_t d_ff = 0;                        ///< feed_forward_length, of an expert
  std::size_t n_experts = 0;                   ///< expert_count; 0: one feed-forward for all rows
  std::size_t n_experts_used = 0;              ///< expert_used_count: by one row
  std::size_t n_heads = 0;                     ///< attention.head_count
  std::size_t n_kv_heads = 0;                  ///< attention.head_count_kv; divides n_heads
  std::size_t head_dim = 0;            ///< attention.key_length, default d_model / n_heads; even
  std::size_t n_vocab = 0;             ///< rows of token_embd.weight
  std::size_t context = 0;             ///< context_length: positions the model was trained for
  std::size_t rope_dims = 0;           ///< rope.dimension_count: leading dims that rotate; even
  float norm_eps = 1e-5F;              ///< attention.layer_norm_rms_epsilon
  float embedding_scale = 1.0F;        ///< rows of the embedding are multiplied by it
  float attention_scale = 0;           ///< scores are multiplied by it; 0: by 1 / sqrt(head_dim)
  float residual_scale = 1.0F;         ///< what a layer adds to the residual stream, likewise
  float logit_divisor = 1.0F;          ///< logits are divided by it
  std::uint64_t pooling_type = 0;      ///< of embeddings, as the file says; no logit depends on it
  bool has_post_norms = false;         ///< what a layer adds to the residual stream is normed first
  std::vector<RopeSpec> ropes = {};    ///< the layers' different ones
  std::vector<LayerSpec> layers = {};  ///< (n_layers)

  std::size_t q_rows() const { return n_heads * head_dim; }
  std::size_t kv_rows() const { return n_kv_heads * head_dim; }
  std::size_t rope_pairs() const { return rope_dims / 2; }
  /// What scores are multiplied by.
  float score_scale() const;
  /// Feed-forwards of a layer, and how many of them a row goes through.
  std::size_t n_ffn() const { return n_experts == 0 ? 1 : n_experts; }
  std::size_t n_ffn_used() const { return n_experts == 0 ? 1 : n_experts_used; }
  /// Features of a row inside of all of those, and at their ends.
  std::size_t ffn_width() const { return n_ffn_used() * d_ff; }
  std::size_t ffn_out_width() const { return n_ffn_used() * d_model; }
  const RopeSpec& rope_of(std::size_t layer) const { return ropes[layers[layer].rope]; }
};

/// A size that a table names before the model is known: a member of HyperParameters, or 1.
class ModelSize {
 public:
  constexpr ModelSize() = default;
  constexpr ModelSize(std::size_t HyperParameters::*member) : member_(member) {}
  constexpr ModelSize(std::size_t (HyperParameters::*function)() const) : function_(function) {}

  std::size_t of(const HyperParameters& config) const {
    if (member_ != nullptr) return config.*member_;
    return function_ != nullptr ? (config.*function_)() : 1;
  }

 private:
  std::size_t HyperParameters::*member_ = nullptr;
  std::size_t (HyperParameters::*function_)() const = nullptr;
};

/// Reads and cross-checks the metadata against itself and against the blocks, embedding and
/// vocabulary that the file holds, before anything is allocated by it.
/// Errors: kMalformed for values that contradict each other or the file; kUnsupported for another
/// architecture, its refused keys, per-layer head counts, unknown RoPE scalings.
Result<HyperParameters> read_hyper_parameters(const GgufFile& gguf);

}  // namespace llm
