#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "engine/model/layer_table.h"

namespace llm {

/// Receives the activations of a forward pass, the taps of kTaps
/// (engine/forward/activation_points.h). The engine knows validation only through this interface.
class ProbeSink {
 public:
  static constexpr int kGlobal = kOutsideLayers;  ///< the layer of a tap outside the layers

  virtual ~ProbeSink() = default;

  /// A forward pass over `tokens` begins; `first_position` is the absolute position of tokens[0].
  virtual void begin_step(std::span<const int> tokens, std::size_t first_position) = 0;

  /// One tap of that pass: `values` is [rows, features] with the features of a row contiguous. A
  /// sink may change them; what reads the tap afterwards takes the changed values. The fast path
  /// has read norms and k_rope by then: a change there has no effect.
  /// @param layer  0-based, or kGlobal
  /// @param first_token  index, within the step, of the token of row 0
  virtual void tap(int layer, std::string_view name, std::span<float> values, std::size_t features,
                   std::size_t first_token) = 0;
};

}  // namespace llm
