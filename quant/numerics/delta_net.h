#pragma once

#include <cmath>

#include "quant/numerics/activation.h"
#include "quant/numerics/f64_functions.h"

namespace llm::contract {

// The gates of Gated DeltaNets and of Mamba-2 (docs/numerics.md), of one token and value head.

/// Added to the square of the length of a head of q or k (transformers' modeling_qwen3_5.py).
inline constexpr float kDeltaEps = 1e-6F;

/// How much of what a key finds is replaced. @param b  row of the product with ssm_beta
inline float delta_beta(float b) { return activate(Activation::kSigmoid, b, 1.0F); }

/// log(1 + exp(r)).
inline float softplus(float r) {
  const auto e = static_cast<double>(exp(-std::fabs(r)));
  return static_cast<float>(static_cast<double>(r > 0 ? r : 0) + log(1.0 + e));
}

/// Of Mamba-2 a token's step.
/// @param a  row of the product with ssm_alpha  @param dt  of ssm_dt
inline float delta_step(float a, float dt) { return softplus(a + dt); }

/// What the state is multiplied by. @param slope  of ssm_a
inline float delta_decay(float a, float dt, float slope) { return exp(delta_step(a, dt) * slope); }

}  // namespace llm::contract
