#pragma once

#include <cstdint>
#include <span>

#include "engine/model/layer_spec.h"

namespace llm {

/// The experts of a row by its router's logits (docs/numerics.md, "Experts").
/// @param spec     its router and experts_scale
/// @param bias     (n), added to sigmoids for the choice alone; may be empty
/// @param chosen   (k), overwritten with the ids of the k first, ascending
/// @param weights  (k), overwritten
/// @pre 1 <= k <= n = logits.size(). Cost: k * n comparisons at most.
void route(const FfnSpec& spec, std::span<const float> logits, std::span<const float> bias,
           std::span<std::uint32_t> chosen, std::span<float> weights);

}  // namespace llm
