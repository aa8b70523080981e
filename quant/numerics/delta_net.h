#pragma once

#include <cmath>

#include "quant/numerics/activation.h"
#include "quant/numerics/f64_functions.h"

namespace llm::contract {

// The gates of a Gated DeltaNet (docs/numerics.md), of one token and value head.

/// Added to the square of the length of a head of q or k (transformers' modeling_qwen3_5.py).
inline constexpr float kDeltaEps = 1e-6F;

/// How much of what a key finds is replaced. @param b  row of the product with ssm_beta
inline float delta_beta(float b) { return activate(Activation::kSigmoid, b, 1.0F); }

/// What the state is multiplied by.
/// @param a  row of the product with ssm_alpha  @param dt, slope  of ssm_dt and ssm_a
inline float delta_decay(float a, float dt, float slope) {
  const float r = a + dt;
  const auto e = static_cast<double>(exp(-std::fabs(r)));
  const double softplus = static_cast<double>(r > 0 ? r : 0) + log(1.0 + e);
  return exp(static_cast<float>(softplus) * slope);
}

}  // namespace llm::contract
