#pragma once

#include <cstddef>
#include <span>

#include "engine/state/delta_state.h"

namespace llm::reference {

/// Convolutions, Gated DeltaNets and Mamba-2 in plain loops: the definition (docs/numerics.md) that
/// every fast path equals bit for bit. All work on one token.

/// One channel: the fma chain over inputs, oldest first, and the bias, if any, or silu of it.
float convolve(std::span<const float> inputs, std::span<const float> weights,
               std::span<const float> bias, bool silu);

/// The convolution of a token; `tail` then has the token's row as the last.
/// @param x        (channels), before the convolution
/// @param weights  (channels, width)
/// @param bias     (channels), or empty
/// @param y        (channels), overwritten
void convolve(const ConvolutionSpec& spec, std::span<const float> x, std::span<const float> weights,
              std::span<const float> bias, const ConvTail& tail, std::span<float> y);

/// x of length 1, times `factor`.
void unit_length(std::span<float> x, float factor);

/// What a query is multiplied by, beside its length.
float query_factor(const DeltaNetSpec& spec);

/// A token through a column of a head's state, (k_dim) elements `stride` floats apart. @return o
/// @param q, k  (k_dim), of their lengths
float delta_rule(std::span<const float> q, std::span<const float> k, float v, float decay,
                 float beta, float* state, std::size_t stride);

/// The same of Mamba-2.
/// @param past  of ssm_d
float scan(std::span<const float> q, std::span<const float> k, float v, float decay, float step,
           float past, float* state, std::size_t stride);

/// A token through the states of all heads of Mamba-2. As below, but for
/// @param past  (n_v_heads), ssm_d
void scan(const DeltaNetSpec& spec, std::span<const float> x, std::span<const float> a,
          std::span<const float> dt, std::span<const float> slope, std::span<const float> past,
          const DeltaState& state, std::span<float> o);

/// A token through the states of all heads.
/// @param x          (channels), after the convolution
/// @param a, b       (n_v_heads), products with ssm_alpha and ssm_beta
/// @param dt, slope  (n_v_heads), ssm_dt and ssm_a
/// @param o          (n_v_heads * v_dim), overwritten
void delta_rule(const DeltaNetSpec& spec, std::span<const float> x, std::span<const float> a,
                std::span<const float> b, std::span<const float> dt, std::span<const float> slope,
                const DeltaState& state, std::span<float> o);

}  // namespace llm::reference
