#ifndef LLM_ENGINE_FORWARD_PROBE_H_
#define LLM_ENGINE_FORWARD_PROBE_H_

#include <cstddef>
#include <span>
#include <string_view>

namespace llm {

/// Receives the activations of a forward pass. The engine knows validation only through this
/// interface.
///
/// Taps of a layer, in order: attn_norm, q, k, v, q_rope, k_rope, attn_ctx (before the output
/// projection), attn_out, ffn_inp, ffn_norm, gate, up, ffn_act, ffn_out, l_out. Global taps: embd,
/// result_norm, logits.
class ProbeSink {
 public:
  static constexpr int kGlobal = -1;

  virtual ~ProbeSink() = default;

  /// A forward pass over `tokens` begins; `first_position` is the absolute position of tokens[0].
  virtual void begin_step(std::span<const int> tokens, std::size_t first_position) = 0;

  /// One tap of that pass: `values` is [rows, features] with the features of a row contiguous.
  /// @param layer  0-based, or kGlobal
  /// @param first_token  index, within the step, of the token of row 0
  virtual void tap(int layer, std::string_view name, std::span<const float> values,
                   std::size_t features, std::size_t first_token) = 0;
};

}  // namespace llm

#endif  // LLM_ENGINE_FORWARD_PROBE_H_
