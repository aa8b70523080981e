#ifndef LLM_ENGINE_FORWARD_TAPS_H_
#define LLM_ENGINE_FORWARD_TAPS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "engine/model/hyper_parameters.h"
#include "engine/model/in_every_layer.h"

namespace llm {

/// What computes a tap from the ones before it.
enum class TapOp {
  kEmbedding,  ///< a row of a matrix
  kNorm,       ///< RMSNorm with a vector
  kProduct,    ///< product with a matrix, and a bias where the model has one
  kRope,       ///< after a norm of each head where the model has one
  kAttention,
  kActivation,  ///< SiLU and a product element by element
  kSum,         ///< of two taps
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
  std::string_view weight;     ///< TensorRole::name of what takes part; empty for ops without
  std::string_view origin;     ///< the op in words where it is not `op` with `weight`
  std::string_view bias = {};  ///< TensorRole::name of what is added; empty for ops without
};

/// Every tap, in the order of the data flow, which is the order in which an error travels, and the
/// order in which both forward passes send them.
inline constexpr std::array kTaps = [] {
  using enum TapOp;
  using enum TapLayout;
  using H = HyperParameters;
  return std::array{
      Tap{"embd", false, &H::d_model, kPlain, kEmbedding, "token_embd.weight", ""},
      Tap{"attn_norm", true, &H::d_model, kPlain, kNorm, "attn_norm.weight", ""},
      Tap{"q", true, &H::q_rows, kRopeHeads, kProduct, "attn_q.weight", "", "attn_q.bias"},
      Tap{"k", true, &H::kv_rows, kRopeHeads, kProduct, "attn_k.weight", "", "attn_k.bias"},
      Tap{"v", true, &H::kv_rows, kPlain, kProduct, "attn_v.weight", "", "attn_v.bias"},
      Tap{"q_rope", true, &H::q_rows, kRopeHeads, kRope, "attn_q_norm.weight",
          "RoPE on q, its heads normed where the model has attn_q_norm"},
      Tap{"k_rope", true, &H::kv_rows, kRopeHeads, kRope, "attn_k_norm.weight",
          "RoPE on k, its heads normed where the model has attn_k_norm"},
      Tap{"attn_ctx", true, &H::q_rows, kPlain, kAttention, "",
          "attention over q_rope, k_rope and v"},
      Tap{"attn_out", true, &H::d_model, kPlain, kProduct, "attn_output.weight", ""},
      Tap{"ffn_inp", true, &H::d_model, kPlain, kSum, "", "residual sum with attn_out"},
      Tap{"ffn_norm", true, &H::d_model, kPlain, kNorm, "ffn_norm.weight", ""},
      Tap{"gate", true, &H::d_ff, kPlain, kProduct, "ffn_gate.weight", ""},
      Tap{"up", true, &H::d_ff, kPlain, kProduct, "ffn_up.weight", ""},
      Tap{"ffn_act", true, &H::d_ff, kPlain, kActivation, "", "SiLU(gate) * up"},
      Tap{"ffn_out", true, &H::d_model, kPlain, kProduct, "ffn_down.weight", ""},
      Tap{"l_out", true, &H::d_model, kPlain, kSum, "", "residual sum with ffn_out"},
      Tap{"result_norm", false, &H::d_model, kPlain, kNorm, "output_norm.weight", ""},
      Tap{"logits", false, &H::n_vocab, kPlain, kProduct, "output.weight",
          "matrix product with output.weight (token_embd.weight when tied)"},
  };
}();

/// The taps of a layer, in order.
inline std::span<const Tap> layer_taps() {
  const auto* begin = std::ranges::find(kTaps, true, &Tap::per_layer);
  return {begin, std::ranges::find(begin, kTaps.end(), false, &Tap::per_layer)};
}

/// Every tap of every layer, in the order of the data flow.
inline std::vector<InLayer<Tap>> taps_of_model(std::size_t n_layers) {
  return in_every_layer(std::span<const Tap>(kTaps), n_layers);
}

/// The tap of that name, in a layer or (kOutsideLayers) outside; or nullptr.
constexpr const Tap* find_tap(int layer, std::string_view name) {
  const auto* found = std::ranges::find_if(kTaps, [&](const Tap& tap) {
    return tap.name == name && tap.per_layer == (layer != kOutsideLayers);
  });
  return found == kTaps.end() ? nullptr : found;
}

}  // namespace llm

#endif  // LLM_ENGINE_FORWARD_TAPS_H_
