#pragma once

#include <cstdint>
#include <span>

#include "engine/model/layer_spec.h"

namespace llm {

/// The experts of a row by its router's logits (docs/numerics.md, "Experts").
/// @param spec     its router, weights_add_up and experts_scale
/// @param bias     (n), added to probabilities for the choice alone; may be empty
/// @param chosen   (k), overwritten with the ids of the k first, ascending
/// @param weights  (k), overwritten
/// @pre 1 <= k <= n = logits.size(). Cost: k * n comparisons at most,
/// and two exp for each logit where probabilities are needed.
void route(const FfnSpec& spec, std::span<const float> logits, std::span<const float> bias,
           std::span<std::uint32_t> chosen, std::span<float> weights);

}  // namespace llm
