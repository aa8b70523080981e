#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/model/hyper_parameters.h"

namespace llm {

/// Gives `spec` YaRN's ramp and magnitude (docs/numerics.md).
/// @param original_context  positions that the model was trained on before; at least 1
/// @param rounds            the ramp's ends to whole pairs
/// @pre spec.theta > 1. Facts from transformers' modeling_rope_utils.py.
void apply_yarn(RopeSpec& spec, double original_context, bool rounds);

/// Rotary position embedding, GGUF's interleaved pairs (2i, 2i + 1) of the leading dims of
/// each head:
///
///   angle(p, i) = p * ((f / scale) * r + f * (1 - r)) / divisor[i],  f = theta^(-2i / dims)
///
/// where r is YaRN's ramp, 1 without. Angles, cosines and sines are f64, by
/// quant/numerics/f64_functions.h; each cosine and sine, times the magnitude, is rounded to f32
/// once. Beyond contract::kMaxAngle both are NaN.
class Rope {
 public:
  /// @param divisors  rope_freqs.weight, (dims / 2), or empty for none; of no account without dims
  Rope(const RopeSpec& spec, std::span<const float> divisors);

  std::size_t pairs() const { return frequencies_.size(); }
  /// Of each pair, its angle at position 1.
  std::span<const double> frequencies() const { return frequencies_; }

  /// Cosines and sines of `position`, pairs() each.
  void angles(std::size_t position, std::span<float> cos, std::span<float> sin) const;

 private:
  std::vector<double> frequencies_;  ///< angle per position
  double magnitude_;
};

}  // namespace llm
