#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/model/hyper_parameters.h"

namespace llm {

/// YaRN (docs/numerics.md).
struct YarnParameters {
  double original_context;    ///< positions that the model was trained on before; at least 1
  double fast_turns = 32;     ///< in them; pairs that turn more often are left alone; above 0
  double slow_turns = 1;      ///< pairs that turn less often are slowed down fully; above 0
  double log_multiplier = 0;  ///< how much of the magnitude's growth is taken back
  bool rounds = true;         ///< the ramp's ends to whole pairs
};

/// Gives `spec` YaRN's ramp and magnitude.
/// @pre spec.theta > 1. Facts from transformers' modeling_rope_utils.py.
void apply_yarn(RopeSpec& spec, const YarnParameters& yarn);

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
  /// What queries at `position` are multiplied by after they are rotated (RopeSpec::query_growth).
  float query_scale(std::size_t position) const;

 private:
  std::vector<double> frequencies_;  ///< angle per position
  double magnitude_;
  double query_growth_;
  std::size_t query_period_;
};

}  // namespace llm
