#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "engine/model/hyper_parameters.h"
#include "engine/model/in_every_layer.h"

namespace llm {

/// What computes a tap from its inputs (reference::Interpreter).
enum class TapOp {
  kEmbedding,  ///< rows of a matrix, by token
  kNorm,       ///< RMSNorm with a vector
  /// Product with a matrix, and a bias where the model has one. With the router's logits as second
  /// input: with the rows of the experts that these choose, one after the other; a first input that
  /// has a row for each of them is cut alike.
  kProduct,
  kRope,        ///< after a norm of each head where the model has one
  kAttention,   ///< of queries, over keys and values of all positions so far
  kActivation,  ///< LayerSpec::activation of the first, times the second
  kMix,         ///< of what experts give, by the weights of the second, the router's logits
  kSum,
};

/// Which models have a tap. What is left out passes its first input on; the router passes nothing.
enum class TapPart {
  kEvery,
  kPostNorms,  ///< HyperParameters::has_post_norms
  kExperts,    ///< HyperParameters::n_experts > 0
};

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
  TapPart part = TapPart::kEvery;
};

/// How many layers there are, and which taps a layer has.
struct TapFlow {
  std::size_t n_layers;
  bool has_post_norms = false;
  bool has_experts = false;

  TapFlow(std::size_t layers, bool post_norms = false, bool experts = false)
      : n_layers(layers), has_post_norms(post_norms), has_experts(experts) {}
  TapFlow(const HyperParameters& config)
      : TapFlow(config.n_layers, config.has_post_norms, config.n_experts > 0) {}

  bool has(const Tap& tap) const {
    if (tap.part == TapPart::kEvery) return true;
    return tap.part == TapPart::kExperts ? has_experts : has_post_norms;
  }
};

/// Every tap, in the order of the data flow, which is the order in which an error travels, and
/// the order in which both forward passes send them. The definition computes them from this
/// table; the fast pass and the oracle in Python do not read it.
inline constexpr std::array kTaps = [] {
  using enum TapOp;
  using enum TapLayout;
  using H = HyperParameters;
  // clang-format off
  return std::to_array<Tap>({
      {"embd", false, &H::d_model, kPlain, kEmbedding, {}, "token_embd.weight"},
      {"attn_norm", true, &H::d_model, kPlain, kNorm, {"l_out"}, "attn_norm.weight"},
      {"q", true, &H::q_rows, kRopeHeads, kProduct, {"attn_norm"}, "attn_q.weight", "attn_q.bias"},
      {"k", true, &H::kv_rows, kRopeHeads, kProduct, {"attn_norm"}, "attn_k.weight", "attn_k.bias"},
      {"v", true, &H::kv_rows, kPlain, kProduct, {"attn_norm"}, "attn_v.weight", "attn_v.bias"},
      {"q_rope", true, &H::q_rows, kRopeHeads, kRope, {"q"}, "attn_q_norm.weight", "",
       "RoPE on q, its heads normed where the model has attn_q_norm"},
      {"k_rope", true, &H::kv_rows, kRopeHeads, kRope, {"k"}, "attn_k_norm.weight", "",
       "RoPE on k, its heads normed where the model has attn_k_norm"},
      {"attn_ctx", true, &H::q_rows, kPlain, kAttention, {"q_rope", "k_rope", "v"},
       "attn_sinks.weight", "",
       "attention over q_rope, k_rope and v, with attn_sinks where the model has them"},
      {"attn_out", true, &H::d_model, kPlain, kProduct, {"attn_ctx"}, "attn_output.weight",
       "attn_output.bias"},
      {"attn_post", true, &H::d_model, kPlain, kNorm, {"attn_out"}, "post_attention_norm.weight",
       "", "", TapPart::kPostNorms},
      {"ffn_inp", true, &H::d_model, kPlain, kSum, {"l_out", "attn_post"}, "", "",
       "residual sum with attn_out, or attn_post"},
      {"ffn_norm", true, &H::d_model, kPlain, kNorm, {"ffn_inp"}, "ffn_norm.weight"},
      {"router", true, &H::n_experts, kPlain, kProduct, {"ffn_norm"}, "ffn_gate_inp.weight",
       "ffn_gate_inp.bias", "", TapPart::kExperts},
      {"gate", true, &H::ffn_width, kPlain, kProduct, {"ffn_norm", "router"}, "ffn_gate.weight",
       "ffn_gate.bias"},
      {"up", true, &H::ffn_width, kPlain, kProduct, {"ffn_norm", "router"}, "ffn_up.weight",
       "ffn_up.bias"},
      {"ffn_act", true, &H::ffn_width, kPlain, kActivation, {"gate", "up"}, "", "",
       "the activation of gate, times up"},
      {"ffn_out", true, &H::ffn_out_width, kPlain, kProduct, {"ffn_act", "router"},
       "ffn_down.weight", "ffn_down.bias"},
      {"ffn_mix", true, &H::d_model, kPlain, kMix, {"ffn_out", "router"}, "", "",
       "the experts' ffn_out by their weights", TapPart::kExperts},
      {"ffn_post", true, &H::d_model, kPlain, kNorm, {"ffn_mix"}, "post_ffw_norm.weight", "", "",
       TapPart::kPostNorms},
      {"l_out", true, &H::d_model, kPlain, kSum, {"ffn_inp", "ffn_post"}, "", "",
       "residual sum with ffn_out, ffn_mix or ffn_post"},
      {"result_norm", false, &H::d_model, kPlain, kNorm, {"l_out"}, "output_norm.weight"},
      {"logits", false, &H::n_vocab, kPlain, kProduct, {"result_norm"}, "output.weight", "",
       "matrix product with output.weight (token_embd.weight when tied)"},
  });
  // clang-format on
}();

/// The taps of a layer, in order.
inline std::span<const Tap> layer_taps() {
  const auto* begin = std::ranges::find(kTaps, true, &Tap::per_layer);
  return {begin, std::ranges::find(begin, kTaps.end(), false, &Tap::per_layer)};
}

/// The i-th input of a tap of `flow`, in `layer` (kOutsideLayers outside the layers), or nothing.
/// An input that stands after its reader in the table is of the layer before; before the first
/// layer that is the tap before the layers. Outside the layers it is of the last one.
inline std::optional<InLayer<Tap>> input_of(const Tap& tap, int layer, const TapFlow& flow,
                                            std::size_t i = 0) {
  if (i >= tap.inputs.size() || tap.inputs[i].empty()) return std::nullopt;
  const auto find = [](std::string_view name) {
    const auto* found = std::ranges::find(kTaps, name, &Tap::name);
    LLM_CHECK(found != kTaps.end());
    return found;
  };
  const auto* input = find(tap.inputs[i]);
  while (!flow.has(*input)) {
    if (input->op == TapOp::kProduct) return std::nullopt;
    input = find(input->inputs[0]);
  }
  if (!input->per_layer) return InLayer<Tap>{input, kOutsideLayers};
  if (!tap.per_layer) return InLayer<Tap>{input, static_cast<int>(flow.n_layers) - 1};
  if (input < &tap) return InLayer<Tap>{input, layer};
  if (layer > 0) return InLayer<Tap>{input, layer - 1};
  return InLayer<Tap>{layer_taps().data() - 1, kOutsideLayers};
}

/// Every tap of every layer, in the order of the data flow.
inline std::vector<InLayer<Tap>> taps_of_model(const TapFlow& flow) {
  auto taps = in_every_layer(std::span<const Tap>(kTaps), flow.n_layers);
  std::erase_if(taps, [&](const auto& tap) { return !flow.has(*tap.row); });
  return taps;
}

/// The tap of that name, in a layer or (kOutsideLayers) outside; or nullptr.
constexpr const Tap* find_tap(int layer, std::string_view name) {
  const auto* found = std::ranges::find_if(kTaps, [&](const Tap& tap) {
    return tap.name == name && tap.per_layer == (layer != kOutsideLayers);
  });
  return found == kTaps.end() ? nullptr : found;
}

}  // namespace llm
