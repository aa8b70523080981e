#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "quant/numerics/activation.h"

namespace llm {

/// What the output of attention is multiplied by: a function of a second projection.
enum class OutputGate {
  kNone,
  kSigmoid,       ///< of a value for each one of the output
  kSoftplus,      ///< likewise
  kHeadSoftplus,  ///< of a value for each head
};

/// Attention over the keys and values of a sequence.
struct AttentionSpec {
  std::size_t n_heads = 0;     ///< attention.head_count
  std::size_t n_kv_heads = 0;  ///< attention.head_count_kv; divides n_heads
  std::size_t head_dim = 0;    ///< attention.key_length, default d_model / n_heads; even
  std::size_t rope = 0;        ///< index in HyperParameters::ropes
  std::size_t window = 0;  ///< positions that one attends to, including itself; 0: all before it
  float scale = 1;         ///< scores are multiplied by it
  float score_cap = 0;     ///< then their magnitudes stay below it; 0: no cap
  OutputGate output_gate = OutputGate::kNone;
  bool norms_rows = false;     ///< q and k are normed as a whole, not each head
  bool rotates_first = false;  ///< heads are normed after RoPE, not before
  bool value_norm = false;     ///< heads of V are normed, without a weight
  bool v_is_k = false;         ///< V is the product with attn_k, as K before its norm
  /// It has no K and V: it reads those of that layer before it, of equal n_kv_heads, head_dim and
  /// window; in a model with a trunk (HyperParameters::d_trunk) of that layer of the trunk.
  std::optional<std::size_t> kv_of_layer = {};

  std::size_t q_rows() const { return n_heads * head_dim; }
  std::size_t kv_rows() const { return n_kv_heads * head_dim; }
  bool has_gate() const { return output_gate != OutputGate::kNone; }
  std::size_t gate_rows() const {
    if (!has_gate()) return 0;
    return output_gate == OutputGate::kHeadSoftplus ? n_heads : q_rows();
  }
  std::size_t heads_per_kv() const { return n_heads / n_kv_heads; }
};

/// A causal convolution of each channel by itself (docs/numerics.md, "Convolution").
struct ConvolutionSpec {
  std::size_t channels = 0;
  std::size_t width = 0;  ///< positions that it sees, its own the last; >= 2
  bool silu = false;      ///< of what it gives

  /// Values of the rows before the next one, which a sequence keeps.
  std::size_t tail() const { return (width - 1) * channels; }
};

/// Gated DeltaNet or Mamba-2 (docs/numerics.md): a causal convolution over q, k and v, then a state
/// for each value head that every token changes. Mamba-2 calls v x, k B and q C.
struct DeltaNetSpec {
  std::size_t n_k_heads = 0;   ///< ssm.group_count; divides n_v_heads
  std::size_t n_v_heads = 0;   ///< ssm.time_step_rank
  std::size_t k_dim = 0;       ///< ssm.state_size: of a head of q and of k
  std::size_t v_dim = 0;       ///< ssm.inner_size / n_v_heads
  std::size_t conv_width = 0;  ///< ssm.conv_kernel: positions that the convolution sees, >= 2
  bool grouped = false;        ///< value heads of one key head are neighbours
  bool is_mamba = false;       ///< Mamba-2: tokens are added to states, and v comes first

  /// Value heads of a key head.
  std::size_t heads_per_k() const { return n_v_heads / n_k_heads; }
  /// The key head of a value head.
  std::size_t k_head_of(std::size_t head) const {
    return grouped ? head / heads_per_k() : head % n_k_heads;
  }
  std::size_t k_rows() const { return n_k_heads * k_dim; }
  constexpr std::size_t v_rows() const { return n_v_heads * v_dim; }
  /// Channels of the convolution: q, k and v, one after the other; of Mamba-2 v, k and q.
  std::size_t channels() const { return 2 * k_rows() + v_rows(); }
  std::size_t first_q() const { return is_mamba ? v_rows() + k_rows() : 0; }
  std::size_t first_k() const { return is_mamba ? v_rows() : k_rows(); }
  std::size_t first_v() const { return is_mamba ? 0 : 2 * k_rows(); }
  /// Values that share a norm of the output, and how many such norms have weights of their own.
  std::size_t norm_size() const { return is_mamba ? v_rows() / n_k_heads : v_dim; }
  std::size_t n_norms() const { return is_mamba ? n_k_heads : 1; }
  ConvolutionSpec convolution() const { return {channels(), conv_width, true}; }
};

/// A convolution between two gates (docs/numerics.md, "Short convolution"). Its channels are
/// d_model.
struct ShortConvSpec {
  std::size_t d_model = 0;
  std::size_t conv_width = 0;  ///< shortconv.l_cache: positions that the convolution sees, >= 2

  ConvolutionSpec convolution() const { return {d_model, conv_width}; }
};

/// How a router's logits become probabilities of experts (docs/numerics.md).
enum class Router {
  kSoftmax,
  kSigmoid,  ///< of each logit
};

/// A gated feed-forward, or a mixture of experts.
struct FfnSpec {
  std::size_t d_ff = 0;       ///< feed_forward_length; width of an expert
  std::size_t n_experts = 0;  ///< expert_count; 0: no experts
  std::size_t n_used = 0;     ///< expert_used_count: experts per row
  std::size_t d_shared = 0;   ///< width of an expert that every row uses; 0: there is none
  bool weighs_shared = true;  ///< its output is multiplied by the sigmoid of a product
  Router router = Router::kSoftmax;
  bool weights_add_up = true;  ///< the weights of the chosen experts are divided by their sum
  float experts_scale = 1;     ///< expert_weights_scale: the experts' weights are multiplied by it
  /// The router, the experts and the shared expert read norms of their own of the residual stream,
  /// and what the experts and the shared one give is normed before it is added.
  bool own_norms = false;
  Activation activation = Activation::kSwiGlu;

  /// Number of feed-forwards, and how many of them a row uses.
  std::size_t n() const { return n_experts == 0 ? 1 : n_experts; }
  std::size_t n_of_row() const { return n_experts == 0 ? 1 : n_used; }
};

/// A part that some layers have and others lack. The rows of the tables of tensors (kTensorRoles)
/// and of taps (kTaps) name it; a layer has the rows of its parts.
enum class LayerPart {
  kEvery,         ///< every layer
  kAttention,     ///< LayerSpec::mixer is AttentionSpec
  kOwnKeys,       ///< attention without AttentionSpec::kv_of_layer
  kValuesOfKeys,  ///< AttentionSpec::v_is_k
  kValueNorm,     ///< AttentionSpec::value_norm, of a layer with kOwnKeys
  kOutputGate,    ///< AttentionSpec::output_gate
  kStates,        ///< LayerSpec::mixer is DeltaNetSpec
  kDeltaNet,      ///< kStates without DeltaNetSpec::is_mamba
  kMamba,         ///< kStates with it
  kShortConv,     ///< LayerSpec::mixer is ShortConvSpec
  kConvolution,   ///< LayerSpec::mixer has a convolution
  kPreNorms,      ///< LayerSpec::has_pre_norms
  kPostNorms,     ///< LayerSpec::has_post_norms
  kExperts,       ///< a feed-forward is a mixture of experts
  kSharedExpert,  ///< FfnSpec::d_shared
  kSharedWeight,  ///< FfnSpec::weighs_shared, of one norm
  kPlainShared,   ///< kSharedExpert without a weight, of one norm
  kOneFfnNorm,    ///< the feed-forward, or all of the mixture, reads one norm, or none
  kFfnNorm,       ///< kOneFfnNorm with kPreNorms: it reads one
  kExpertsOfOne,  ///< kExperts with kOneFfnNorm
  kFfnNorms,      ///< FfnSpec::own_norms
  kNextToken,     ///< LayerSpec::reads_next_token
  kTrunk,         ///< LayerSpec::reads_trunk
  kLayerInput,    ///< LayerSpec::d_input
  kOutputScale,   ///< LayerSpec::has_output_scale
};

/// Parts of a layer.
class LayerPartSet {
 public:
  LayerPartSet& add(LayerPart part, bool is_there = true) {
    if (is_there) bits_ |= bit(part);
    return *this;
  }
  bool has(LayerPart part) const { return (bits_ & bit(part)) != 0; }

 private:
  static constexpr std::uint32_t bit(LayerPart part) {
    return std::uint32_t{1} << static_cast<unsigned>(part);
  }
  std::uint32_t bits_ = bit(LayerPart::kEvery);
};

/// Everything that one layer is, except what its tensors show: biases, norms of heads.
struct LayerSpec {
  /// The part that reads other positions.
  std::variant<AttentionSpec, DeltaNetSpec, ShortConvSpec> mixer = {};
  std::vector<FfnSpec> ffns = {};  ///< in the order in which they are computed
  bool has_pre_norms = true;       ///< norms of the residual stream, which mixer and ffns read
  bool has_post_norms = false;     ///< norms before each sum into the residual stream
  std::size_t d_input = 0;         ///< values of its own that the token gives it; 0: none
  bool has_output_scale = false;   ///< the residual stream is multiplied by a number at its end
  /// Its input is a product of the next token's embedding and of a row of another model.
  bool reads_next_token = false;
  bool reads_trunk = false;  ///< it is of a model with a trunk (HyperParameters::d_trunk)

  /// nullptr if the mixer is a different one.
  AttentionSpec* attention() { return std::get_if<AttentionSpec>(&mixer); }
  const AttentionSpec* attention() const { return std::get_if<AttentionSpec>(&mixer); }
  const DeltaNetSpec* delta_net() const { return std::get_if<DeltaNetSpec>(&mixer); }
  const ShortConvSpec* short_conv() const { return std::get_if<ShortConvSpec>(&mixer); }
  /// The mixer's; of width 0 if it has none.
  ConvolutionSpec convolution() const {
    if (delta_net() != nullptr) return delta_net()->convolution();
    return short_conv() == nullptr ? ConvolutionSpec() : short_conv()->convolution();
  }

  LayerPartSet parts() const {
    return LayerPartSet()
        .add(LayerPart::kAttention, attention() != nullptr)
        .add(LayerPart::kOwnKeys, has_own_keys())
        .add(LayerPart::kValuesOfKeys, has_own_keys() && attention()->v_is_k)
        .add(LayerPart::kValueNorm, has_own_keys() && attention()->value_norm)
        .add(LayerPart::kOutputGate, attention() != nullptr && attention()->has_gate())
        .add(LayerPart::kStates, delta_net() != nullptr)
        .add(LayerPart::kDeltaNet, delta_net() != nullptr && !delta_net()->is_mamba)
        .add(LayerPart::kMamba, delta_net() != nullptr && delta_net()->is_mamba)
        .add(LayerPart::kShortConv, short_conv() != nullptr)
        .add(LayerPart::kConvolution, convolution().width > 0)
        .add(LayerPart::kPreNorms, has_pre_norms)
        .add(LayerPart::kPostNorms, has_post_norms)
        .add(LayerPart::kExperts, n_experts() > 0)
        .add(LayerPart::kSharedExpert, d_shared() > 0)
        .add(LayerPart::kSharedWeight, d_shared() > 0 && !own_norms() && ffns[0].weighs_shared)
        .add(LayerPart::kPlainShared, d_shared() > 0 && !own_norms() && !ffns[0].weighs_shared)
        .add(LayerPart::kOneFfnNorm, !own_norms())
        .add(LayerPart::kFfnNorm, !own_norms() && has_pre_norms)
        .add(LayerPart::kExpertsOfOne, n_experts() > 0 && !own_norms())
        .add(LayerPart::kFfnNorms, own_norms())
        .add(LayerPart::kNextToken, reads_next_token)
        .add(LayerPart::kTrunk, reads_trunk)
        .add(LayerPart::kLayerInput, d_input > 0)
        .add(LayerPart::kOutputScale, has_output_scale);
  }
  bool has(LayerPart part) const { return parts().has(part); }
  bool has_own_keys() const { return attention() != nullptr && !attention()->kv_of_layer; }

  // Sizes that tables name (ModelSize); 0 if the layer lacks the part.
  std::size_t n_heads() const { return attention() == nullptr ? 0 : attention()->n_heads; }
  std::size_t n_kv_heads() const { return attention() == nullptr ? 0 : attention()->n_kv_heads; }
  std::size_t head_dim() const { return attention() == nullptr ? 0 : attention()->head_dim; }
  std::size_t q_rows() const { return attention() == nullptr ? 0 : attention()->q_rows(); }
  std::size_t kv_rows() const { return attention() == nullptr ? 0 : attention()->kv_rows(); }
  std::size_t gate_rows() const { return attention() == nullptr ? 0 : attention()->gate_rows(); }
  /// Values that share a norm of q, or of k.
  std::size_t q_norm_size() const { return norms_rows() ? q_rows() : head_dim(); }
  std::size_t k_norm_size() const { return norms_rows() ? kv_rows() : head_dim(); }
  bool norms_rows() const { return attention() != nullptr && attention()->norms_rows; }
  std::size_t delta_channels() const {
    return delta_net() == nullptr ? 0 : delta_net()->channels();
  }
  std::size_t delta_v_rows() const { return delta_net() == nullptr ? 0 : delta_net()->v_rows(); }
  std::size_t delta_v_heads() const { return delta_net() == nullptr ? 0 : delta_net()->n_v_heads; }
  std::size_t delta_norm_size() const {
    return delta_net() == nullptr ? 0 : delta_net()->norm_size();
  }
  std::size_t delta_norms() const { return delta_net() == nullptr ? 0 : delta_net()->n_norms(); }
  std::size_t conv_width() const { return convolution().width; }
  std::size_t conv_channels() const { return convolution().channels; }
  /// Rows of d_model that its input is a product of.
  std::size_t n_inputs() const { return reads_next_token ? 2 : 0; }
  std::size_t n_input() const { return d_input; }
  std::size_t window() const { return attention() == nullptr ? 0 : attention()->window; }
  std::size_t d_ff() const { return ffns.empty() ? 0 : ffns[0].d_ff; }
  std::size_t d_shared() const { return ffns.empty() ? 0 : ffns[0].d_shared; }
  bool own_norms() const { return !ffns.empty() && ffns[0].own_norms; }
  std::size_t n_experts() const { return ffns.empty() ? 0 : ffns[0].n_experts; }
  std::size_t n_ffn() const { return ffns.empty() ? 0 : ffns[0].n(); }
  std::size_t n_ffn_used() const { return ffns.empty() ? 0 : ffns[0].n_of_row(); }
  /// Inner features of all feed-forwards that a row uses.
  std::size_t ffn_width() const { return n_ffn_used() * d_ff(); }
};

}  // namespace llm
