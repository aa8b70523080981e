#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/model/hyper_parameters.h"
#include "engine/model/layer_table.h"

namespace llm {

/// What computes a tap from its inputs (reference::Interpreter).
enum class TapOp {
  kEmbedding,  ///< rows of a matrix, by token
  kNorm,       ///< RMSNorm with a vector
  kHeadNorm,   ///< RMSNorm of each head, without a weight
  /// What layers read besides the residual stream: the first, and the norm with a vector of the
  /// second, of each layer by itself.
  kLayerInputs,
  kLayerGate,  ///< FfnSpec::activation of the first, times the layer's part of the second
  kScale,      ///< of each value by one number
  /// Product with a matrix, and a bias where the model has one. With the router's logits as second
  /// input: with the rows of the experts that these choose, one after the other; a first input that
  /// has a row for each of them is cut alike.
  kProduct,
  kRope,         ///< with a norm of each head, or of the row, where the model has one
  kAttention,    ///< of queries, over keys and values of all positions so far
  kOutputGate,   ///< the first, times the sigmoid or softplus of the second
  kConvolution,  ///< of the rows so far, each channel by itself
  kMultiply,     ///< the first times the second
  kDeltaRule,    ///< what queries find in states, after the convolution, beta and alpha
  kScan,         ///< what C finds in states of Mamba-2, after the convolution and alpha
  kNormOfGated,  ///< of the first times the silu of the second, of each group
  kGatedNorm,    ///< of each head of the first, times the silu of the second
  kActivation,   ///< FfnSpec::activation of the first, times the second
  kSharedSum,    ///< the first plus the second times the sigmoid of the third
  kMix,          ///< of what experts give, by the weights of the second, the router's logits
  kSum,
};

/// Ops with a state: they read rows of earlier positions, from the text's beginning or as far back
/// as a convolution sees.
constexpr bool has_state(TapOp op) {
  return op == TapOp::kConvolution || op == TapOp::kDeltaRule || op == TapOp::kScan;
}

/// What the features of a row are.
enum class TapLayout {
  kPlain,
  kRopeHeads,  ///< heads whose features RoPE pairs; a dump says how (qk_layout)
};

/// A value of the data flow that a ProbeSink receives: a row of `width` floats for each token.
struct Tap {
  std::string_view name;
  bool per_layer;
  ModelSize width;
  TapLayout layout;
  TapOp op;
  std::array<std::string_view, 3> inputs;  ///< Tap::name of what is read (input_of()), then empty
  std::string_view weight = {};  ///< TensorRole::name of what takes part; empty for ops without
  std::string_view bias = {};    ///< TensorRole::name of what is added; empty for ops without
  std::string_view origin = {};  ///< the op in words where it is not `op` with `weight`
  /// Layers without it have no such tap: what reads it reads its first input, or nothing where it
  /// is the router's. Rows of different parts may have one name, if no layer has both.
  LayerPart part = LayerPart::kEvery;
};

/// Every tap, in the order of the data flow, which is the order in which an error travels, and
/// the order in which both forward passes send them. The definition computes them from this
/// table; the fast pass and the oracle in Python do not read it.
inline constexpr std::array kTaps = [] {
  using enum TapOp;
  using enum TapLayout;
  using H = HyperParameters;
  using P = LayerPart;
  using S = LayerSpec;
  // clang-format off
  return std::to_array<Tap>({
      {"embd", false, &H::d_model, kPlain, kEmbedding, {}, "token_embd.weight"},
      {"pl_embd", false, &H::d_inputs, kPlain, kEmbedding, {}, "per_layer_token_embd.weight", "",
       "", P::kLayerInput},
      {"pl_proj", false, &H::d_inputs, kPlain, kProduct, {"embd"}, "per_layer_model_proj.weight",
       "", "", P::kLayerInput},
      {"pl_inputs", false, &H::d_inputs, kPlain, kLayerInputs, {"pl_embd", "pl_proj"},
       "per_layer_proj_norm.weight", "", "pl_embd plus the norm of pl_proj, divided by sqrt 2",
       P::kLayerInput},
      {"attn_norm", true, &H::d_model, kPlain, kNorm, {"l_scaled"}, "attn_norm.weight", "", "",
       P::kPreNorms},
      {"q", true, &S::q_rows, kRopeHeads, kProduct, {"attn_norm"}, "attn_q.weight", "attn_q.bias",
       "", P::kAttention},
      {"k", true, &S::kv_rows, kRopeHeads, kProduct, {"attn_norm"}, "attn_k.weight", "attn_k.bias",
       "", P::kOwnKeys},
      {"v", true, &S::kv_rows, kPlain, kProduct, {"attn_norm"}, "attn_v.weight", "attn_v.bias",
       "", P::kOwnKeys},
      {"attn_gate", true, &S::gate_rows, kPlain, kProduct, {"attn_norm"}, "attn_q_gate.weight", "",
       "", P::kOutputGate},
      {"q_rope", true, &S::q_rows, kRopeHeads, kRope, {"q"}, "attn_q_norm.weight", "",
       "RoPE on q, its heads normed where the model has attn_q_norm, and its scale", P::kAttention},
      {"k_rope", true, &S::kv_rows, kRopeHeads, kRope, {"k"}, "attn_k_norm.weight", "",
       "RoPE on k, its heads normed where the model has attn_k_norm", P::kOwnKeys},
      {"v_norm", true, &S::kv_rows, kPlain, kHeadNorm, {"v"}, "", "", "RMSNorm of the heads of v",
       P::kValueNorm},
      {"attn_ctx", true, &S::q_rows, kPlain, kAttention, {"q_rope", "k_rope", "v_norm"},
       "attn_sinks.weight", "",
       "attention over q_rope, k_rope and v or v_norm, with attn_sinks where the model has them",
       P::kAttention},
      {"attn_gated", true, &S::q_rows, kPlain, kOutputGate, {"attn_ctx", "attn_gate"}, "", "",
       "attn_ctx times the sigmoid or softplus of attn_gate", P::kOutputGate},
      {"attn_out", true, &H::d_model, kPlain, kProduct, {"attn_gated"}, "attn_output.weight",
       "attn_output.bias", "", P::kAttention},
      {"qkv", true, &S::delta_channels, kPlain, kProduct, {"attn_norm"}, "attn_qkv.weight", "", "",
       P::kStates},
      {"z", true, &S::delta_v_rows, kPlain, kProduct, {"attn_norm"}, "attn_gate.weight", "", "",
       P::kStates},
      {"beta", true, &S::delta_v_heads, kPlain, kProduct, {"attn_norm"}, "ssm_beta.weight", "", "",
       P::kDeltaNet},
      {"alpha", true, &S::delta_v_heads, kPlain, kProduct, {"attn_norm"}, "ssm_alpha.weight", "",
       "", P::kStates},
      {"qkv_conv", true, &S::delta_channels, kPlain, kConvolution, {"qkv"}, "ssm_conv1d.weight",
       "ssm_conv1d.bias", "silu of the convolution of qkv with ssm_conv1d", P::kStates},
      {"delta", true, &S::delta_v_rows, kPlain, kDeltaRule, {"qkv_conv", "beta", "alpha"}, "ssm_a",
       "ssm_dt.bias", "the delta rule over qkv_conv, beta and alpha, with ssm_a and ssm_dt",
       P::kDeltaNet},
      {"delta_norm", true, &S::delta_v_rows, kPlain, kGatedNorm, {"delta", "z"}, "ssm_norm.weight",
       "", "RMSNorm of the heads of delta with ssm_norm, times silu of z", P::kDeltaNet},
      {"delta", true, &S::delta_v_rows, kPlain, kScan, {"qkv_conv", "alpha"}, "ssm_a",
       "ssm_dt.bias", "Mamba-2 over qkv_conv and alpha, with ssm_a, ssm_dt and ssm_d", P::kMamba},
      {"delta_norm", true, &S::delta_v_rows, kPlain, kNormOfGated, {"delta", "z"},
       "ssm_norm.weight", "", "RMSNorm of delta times silu of z, with ssm_norm", P::kMamba},
      {"attn_out", true, &H::d_model, kPlain, kProduct, {"delta_norm"}, "ssm_out.weight", "", "",
       P::kStates},
      {"conv_b", true, &H::d_model, kPlain, kProduct, {"attn_norm"}, "shortconv.b.weight", "", "",
       P::kShortConv},
      {"conv_c", true, &H::d_model, kPlain, kProduct, {"attn_norm"}, "shortconv.c.weight", "", "",
       P::kShortConv},
      {"conv_x", true, &H::d_model, kPlain, kProduct, {"attn_norm"}, "shortconv.x.weight", "", "",
       P::kShortConv},
      {"conv_bx", true, &H::d_model, kPlain, kMultiply, {"conv_b", "conv_x"}, "", "",
       "conv_b times conv_x", P::kShortConv},
      {"conv", true, &H::d_model, kPlain, kConvolution, {"conv_bx"}, "ssm_conv1d.weight", "",
       "the convolution of conv_bx with shortconv.conv", P::kShortConv},
      {"conv_gated", true, &H::d_model, kPlain, kMultiply, {"conv", "conv_c"}, "", "",
       "conv times conv_c", P::kShortConv},
      {"attn_out", true, &H::d_model, kPlain, kProduct, {"conv_gated"},
       "shortconv.out_proj.weight", "", "", P::kShortConv},
      {"attn_post", true, &H::d_model, kPlain, kNorm, {"attn_out"}, "post_attention_norm.weight",
       "", "", P::kPostNorms},
      {"ffn_inp", true, &H::d_model, kPlain, kSum, {"l_scaled", "attn_post"}, "", "",
       "residual sum with attn_out, or attn_post"},
      {"ffn_norm", true, &H::d_model, kPlain, kNorm, {"ffn_inp"}, "ffn_norm.weight", "", "",
       P::kFfnNorm},
      {"router_norm", true, &H::d_model, kPlain, kNorm, {"ffn_inp"}, "ffn_gate_inp.scale", "", "",
       P::kFfnNorms},
      {"router", true, &S::n_experts, kPlain, kProduct, {"ffn_norm"}, "ffn_gate_inp.weight",
       "ffn_gate_inp.bias", "", P::kExpertsOfOne},
      {"router", true, &S::n_experts, kPlain, kProduct, {"router_norm"}, "ffn_gate_inp.weight", "",
       "matrix product with ffn_gate_inp.weight, divided by the root of d_model", P::kFfnNorms},
      {"experts_norm", true, &H::d_model, kPlain, kNorm, {"ffn_inp"}, "pre_ffw_norm_2.weight", "",
       "", P::kFfnNorms},
      {"gate", true, &S::ffn_width, kPlain, kProduct, {"ffn_norm", "router"}, "ffn_gate.weight",
       "ffn_gate.bias", "", P::kOneFfnNorm},
      {"gate", true, &S::ffn_width, kPlain, kProduct, {"experts_norm", "router"},
       "ffn_gate.weight", "", "", P::kFfnNorms},
      {"up", true, &S::ffn_width, kPlain, kProduct, {"ffn_norm", "router"}, "ffn_up.weight",
       "ffn_up.bias", "", P::kOneFfnNorm},
      {"up", true, &S::ffn_width, kPlain, kProduct, {"experts_norm", "router"}, "ffn_up.weight",
       "", "", P::kFfnNorms},
      {"ffn_act", true, &S::ffn_width, kPlain, kActivation, {"gate", "up"}, "", "",
       "the activation of gate, times up"},
      {"ffn_out", true, ModelSize(&S::n_ffn_used, &H::d_model), kPlain, kProduct,
       {"ffn_act", "router"}, "ffn_down.weight", "ffn_down.bias"},
      {"ffn_mix", true, &H::d_model, kPlain, kMix, {"ffn_out", "router"}, "", "",
       "the experts' ffn_out by their weights", P::kExperts},
      {"mix_norm", true, &H::d_model, kPlain, kNorm, {"ffn_mix"}, "post_ffw_norm_2.weight", "", "",
       P::kFfnNorms},
      {"ffn_norm", true, &H::d_model, kPlain, kNorm, {"ffn_inp"}, "ffn_norm.weight", "", "",
       P::kFfnNorms},
      {"shared_gate", true, &S::d_shared, kPlain, kProduct, {"ffn_norm"}, "ffn_gate_shexp.weight",
       "", "", P::kSharedExpert},
      {"shared_up", true, &S::d_shared, kPlain, kProduct, {"ffn_norm"}, "ffn_up_shexp.weight", "",
       "", P::kSharedExpert},
      {"shared_act", true, &S::d_shared, kPlain, kActivation, {"shared_gate", "shared_up"}, "", "",
       "the activation of shared_gate, times shared_up", P::kSharedExpert},
      {"shared_out", true, &H::d_model, kPlain, kProduct, {"shared_act"}, "ffn_down_shexp.weight",
       "", "", P::kSharedExpert},
      {"shared_weight", true, ModelSize(), kPlain, kProduct, {"ffn_norm"},
       "ffn_gate_inp_shexp.weight", "", "", P::kSharedWeight},
      {"shared_norm", true, &H::d_model, kPlain, kNorm, {"shared_out"}, "post_ffw_norm_1.weight",
       "", "", P::kFfnNorms},
      {"ffn_sum", true, &H::d_model, kPlain, kSharedSum, {"ffn_mix", "shared_out", "shared_weight"},
       "", "", "ffn_mix plus shared_out times the sigmoid of shared_weight", P::kSharedWeight},
      {"ffn_sum", true, &H::d_model, kPlain, kSharedSum, {"ffn_mix", "shared_out"}, "", "",
       "ffn_mix plus shared_out", P::kPlainShared},
      {"ffn_sum", true, &H::d_model, kPlain, kSum, {"mix_norm", "shared_norm"}, "", "",
       "mix_norm plus shared_norm", P::kFfnNorms},
      {"ffn_post", true, &H::d_model, kPlain, kNorm, {"ffn_sum"}, "post_ffw_norm.weight", "", "",
       P::kPostNorms},
      {"l_out", true, &H::d_model, kPlain, kSum, {"ffn_inp", "ffn_post"}, "", "",
       "residual sum with ffn_out, ffn_mix, ffn_sum or ffn_post"},
      {"pl_gate", true, &S::n_input, kPlain, kProduct, {"l_out"}, "inp_gate.weight", "", "",
       P::kLayerInput},
      {"pl_act", true, &S::n_input, kPlain, kLayerGate, {"pl_gate", "pl_inputs"}, "", "",
       "the activation of pl_gate, times the layer's part of pl_inputs", P::kLayerInput},
      {"pl_out", true, &H::d_model, kPlain, kProduct, {"pl_act"}, "proj.weight", "", "",
       P::kLayerInput},
      {"pl_post", true, &H::d_model, kPlain, kNorm, {"pl_out"}, "post_norm.weight", "", "",
       P::kLayerInput},
      {"pl_sum", true, &H::d_model, kPlain, kSum, {"l_out", "pl_post"}, "", "",
       "residual sum with pl_post", P::kLayerInput},
      {"l_scaled", true, &H::d_model, kPlain, kScale, {"pl_sum"}, "layer_output_scale.weight", "",
       "the residual stream times layer_output_scale", P::kOutputScale},
      {"result_norm", false, &H::d_model, kPlain, kNorm, {"l_scaled"}, "output_norm.weight"},
      {"logits", false, &H::n_vocab, kPlain, kProduct, {"result_norm"}, "output.weight", "",
       "matrix product with output.weight (token_embd.weight when tied), capped where the model "
       "says so"},
  });
  // clang-format on
}();

/// The taps of a layer, in order.
inline std::span<const Tap> layer_taps() {
  const auto* begin = std::ranges::find(kTaps, true, &Tap::per_layer);
  return {begin, std::ranges::find(begin, kTaps.end(), false, &Tap::per_layer)};
}

/// The first tap of that name, in a layer or (kOutsideLayers) outside; or nullptr.
constexpr const Tap* find_tap(int layer, std::string_view name) {
  const auto* found = std::ranges::find_if(kTaps, [&](const Tap& tap) {
    return tap.name == name && tap.per_layer == (layer != kOutsideLayers);
  });
  return found == kTaps.end() ? nullptr : found;
}

/// Which taps the layers of a model have, by their parts.
class TapFlow {
 public:
  explicit TapFlow(std::vector<LayerPartSet> layers) : layers_(std::move(layers)) {}
  /// Layers of attention and of one feed-forward.
  TapFlow(std::size_t n_layers)
      : layers_(n_layers, LayerPartSet()
                              .add(LayerPart::kAttention)
                              .add(LayerPart::kOwnKeys)
                              .add(LayerPart::kPreNorms)
                              .add(LayerPart::kOneFfnNorm)
                              .add(LayerPart::kFfnNorm)) {}
  TapFlow(const HyperParameters& config) {
    for (const LayerSpec& layer : std::span(config.layers).first(config.n_layers)) {
      kv_layers_.push_back(static_cast<int>(layers_.size()));
      const AttentionSpec* spec = layer.attention();
      if (spec != nullptr && spec->kv_of_layer)
        kv_layers_.back() = static_cast<int>(*spec->kv_of_layer);
      layers_.push_back(layer.parts());
    }
  }

  std::span<const LayerPartSet> layers() const { return layers_; }
  bool has(const Tap& tap, int layer) const {
    if (tap.part == LayerPart::kEvery) return true;
    if (layers_.empty()) return false;
    return layers_[tap.per_layer ? static_cast<std::size_t>(layer) : 0].has(tap.part);
  }
  /// The layer whose keys and values a layer reads.
  int kv_layer(int layer) const {
    return kv_layers_.empty() ? layer : kv_layers_[static_cast<std::size_t>(layer)];
  }
  /// The tap of that name that `layer` has; find_tap() where it has none.
  const Tap* find(int layer, std::string_view name) const {
    const Tap* found = find_tap(layer, name);
    if (found == nullptr || has(*found, layer)) return found;
    const auto* other = std::find_if(found + 1, kTaps.data() + kTaps.size(), [&](const Tap& tap) {
      return tap.name == name && tap.per_layer == found->per_layer && has(tap, layer);
    });
    return other == kTaps.data() + kTaps.size() ? found : other;
  }

 private:
  std::vector<LayerPartSet> layers_;
  std::vector<int> kv_layers_;  ///< empty: each its own
};

/// The i-th input of a tap of `flow`, in `layer` (kOutsideLayers outside the layers), or nothing.
/// An input that stands after its reader in the table is of the layer before; before the first
/// layer that is the tap before the layers. Outside the layers it is of the last one.
inline std::optional<InLayer<Tap>> input_of(const Tap& tap, int layer, const TapFlow& flow,
                                            std::size_t i = 0) {
  if (i >= tap.inputs.size() || tap.inputs[i].empty()) return std::nullopt;
  const auto* any = std::ranges::find(kTaps, tap.inputs[i], &Tap::name);
  LLM_CHECK(any != kTaps.end());
  if (!any->per_layer) return InLayer<Tap>{any, kOutsideLayers};
  const int at = !tap.per_layer                         ? static_cast<int>(flow.layers().size()) - 1
                 : tap.op == TapOp::kAttention && i > 0 ? flow.kv_layer(layer)
                 : any < &tap                           ? layer
                                                        : layer - 1;
  if (at < 0) return InLayer<Tap>{find_tap(kOutsideLayers, "embd"), kOutsideLayers};
  const Tap* input = flow.find(at, any->name);
  if (flow.has(*input, at)) return InLayer<Tap>{input, at};
  if (input->op == TapOp::kProduct) return std::nullopt;
  return input_of(*input, at, flow);
}

/// Every tap of every layer, in the order of the data flow.
inline std::vector<InLayer<Tap>> taps_of_model(const TapFlow& flow) {
  auto taps = in_every_layer(std::span<const Tap>(kTaps), flow.layers().size());
  std::erase_if(taps, [&](const auto& tap) { return !flow.has(*tap.row, tap.layer); });
  return taps;
}

}  // namespace llm
