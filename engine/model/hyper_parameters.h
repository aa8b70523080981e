#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/architecture.h"
#include "engine/model/layer_spec.h"

namespace llm {

/// YaRN's ramp between fast and slow pairs: RopeSpec::scale applies fully to pairs from `high` on,
/// and not to pairs up to `low`.
struct YarnRamp {
  double low;
  double high;
};

/// How RoPE rotates heads (engine/model/rope.h).
struct RopeSpec {
  std::size_t dims = 0;               ///< leading dims of a head that rotate; even; 0: none does
  float theta = 10000.0F;             ///< rope.freq_base
  float scale = 1.0F;                 ///< positions are divided by it (rope.scaling.factor)
  double magnitude = 1;               ///< of cosines and sines (rope.scaling.attn_factor, YaRN)
  std::optional<YarnRamp> yarn = {};  ///< none: of every pair
  bool has_divisors = true;  ///< rope_freqs.weight divides its frequencies, if there is one
  /// After rotation queries are multiplied by 1 + query_growth * ln(1 + the whole query_periods
  /// before their position) (attention.temperature_scale); 0: they are not.
  float query_growth = 0;
  std::size_t query_period = 1;
};

/// The shape of a model, read from a GGUF's metadata and checked for consistency. The keys are the
/// architecture's HyperParameterKeys.
struct HyperParameters {
  const Architecture* architecture = nullptr;  ///< never nullptr when read from a file
  std::size_t n_layers = 0;      ///< block_count - nextn_predict_layers; layers.size()
  std::size_t n_mtp_layers = 0;  ///< nextn_predict_layers: blocks after them (mtp())
  std::size_t first_block = 0;   ///< the file's block that is layer 0
  std::size_t d_model = 0;       ///< embedding_length
  std::size_t n_vocab = 0;       ///< rows of token_embd.weight
  std::size_t context = 0;       ///< context_length: positions the model was trained for
  float norm_eps = 1e-5F;        ///< attention.layer_norm_rms_epsilon
  float embedding_scale = 1.0F;  ///< rows of the embedding are multiplied by it
  float residual_scale = 1.0F;   ///< the same for what a layer adds to the residual stream
  float logit_divisor = 1.0F;    ///< logits are divided by it
  float router_divisor = 1.0F;   ///< and the router's
  float logit_cap = 0;           ///< then their magnitudes stay below it; 0: no cap
  std::size_t d_inputs = 0;      ///< LayerSpec::d_input of all layers of the file
  /// embedding_length_out. Not 0 in a model that is made for another one, its trunk: it has no keys
  /// and values and reads those of the trunk's last layers; its input is a product of a token's
  /// embedding in the trunk and of the trunk's final norm, rows of d_trunk, and so is its own
  /// final norm when it is read.
  std::size_t d_trunk = 0;
  float trunk_embedding_scale = 1;     ///< the trunk's embedding_scale
  std::uint64_t pooling_type = 0;      ///< of embeddings, as the file says; no logit depends on it
  std::vector<RopeSpec> ropes = {};    ///< the different ones of all layers
  std::vector<LayerSpec> layers = {};  ///< (n_layers)

  /// Pairs for which rope_freqs.weight has divisors.
  std::size_t rope_pairs() const { return ropes.empty() ? 0 : ropes.front().dims / 2; }
  /// LayerSpec::d_input, which all layers have in common.
  std::size_t d_input() const { return layers.empty() ? 0 : layers.front().d_input; }
  /// Dims of a head whose rows lie as pairs in files, also in layers that do not rotate.
  std::size_t paired_dims(std::size_t layer) const {
    return rope_of(layer).dims > 0 ? rope_of(layer).dims : 2 * rope_pairs();
  }
  /// @pre the layer has attention
  const AttentionSpec& attention(std::size_t layer) const { return *layers[layer].attention(); }
  const RopeSpec& rope_of(std::size_t layer) const { return ropes[attention(layer).rope]; }
  /// The largest of the layers' sizes, 0 without layers: most(&LayerSpec::q_rows).
  std::size_t most(std::size_t (LayerSpec::*size)() const) const {
    std::size_t largest = 0;
    for (const LayerSpec& layer : layers) largest = std::max(largest, (layer.*size)());
    return largest;
  }
  /// The model that is the first block after the layers: from the final norm of a position and the
  /// next token it predicts the token after that. Embedding and output are this model's.
  /// @pre n_mtp_layers > 0, and some layer has attention
  HyperParameters mtp() const;
  bool is_mtp() const { return first_block > 0; }
  bool has_trunk() const { return d_trunk > 0; }
  /// Columns of the product that is the input of a model with a trunk.
  std::size_t d_trunk_input() const { return 2 * d_trunk; }
  /// Values of a row of the final norm for those who read it.
  std::size_t d_normed() const { return has_trunk() ? d_trunk : d_model; }
  /// The same model with only one of its layers.
  HyperParameters only(std::size_t layer) const;
};

/// What values are multiplied by on their way to the layers' own inputs (docs/numerics.md).
struct InputFactors {
  float embedding;   ///< rows of per_layer_token_embd
  float projection;  ///< products with per_layer_model_proj
  float sum;         ///< the sum of both
};
InputFactors input_factors(const HyperParameters& config);

/// A size that a table names before the model is known: one of the model, one of the layer, or
/// their product; 1 by default.
class ModelSize {
 public:
  using OfModel = std::size_t HyperParameters::*;
  using OfModelFunction = std::size_t (HyperParameters::*)() const;
  using OfLayer = std::size_t (LayerSpec::*)() const;

  constexpr ModelSize() = default;
  constexpr ModelSize(OfModel member) : member_(member) {}
  constexpr ModelSize(OfModelFunction function) : function_(function) {}
  constexpr ModelSize(OfLayer layer, OfModel member = nullptr) : member_(member), layer_(layer) {}

  /// @param layer  a layer of the model; for a size of only the model it may be kOutsideLayers
  std::size_t of(const HyperParameters& config, int layer) const {
    std::size_t size = 1;
    if (member_ != nullptr) size *= config.*member_;
    if (function_ != nullptr) size *= (config.*function_)();
    if (layer_ != nullptr) size *= (config.layers[static_cast<std::size_t>(layer)].*layer_)();
    return size;
  }

 private:
  OfModel member_ = nullptr;
  OfModelFunction function_ = nullptr;
  OfLayer layer_ = nullptr;
};

/// Reads the metadata and checks that it agrees with itself and with the blocks, embedding and
/// vocabulary in the file, before anything is allocated by it.
/// Errors: kMalformed for values that contradict each other or the file; kUnsupported for an
/// unknown architecture, refused keys, unknown RoPE scalings.
Result<HyperParameters> read_hyper_parameters(const GgufFile& gguf);

/// Names, in each layer of a model with a trunk, the layer of `trunk` whose keys and values it
/// reads: the last one that has some and the same kind of window.
/// Errors: kUsage where `trunk` is not what the file is made for; kMalformed where heads differ.
Status join_trunk(const GgufFile& gguf, const HyperParameters& trunk, HyperParameters& config);

}  // namespace llm
