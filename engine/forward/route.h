#pragma once

#include <cstdint>
#include <span>

namespace llm {

/// The experts of a row by its router's logits (docs/numerics.md, "Experts").
/// @param chosen   (k), overwritten with the ids of the k first, ascending
/// @param weights  (k), overwritten with the softmax of their logits
/// @pre 1 <= k <= logits.size(). Cost: k * logits.size() comparisons at most.
void route(std::span<const float> logits, std::span<std::uint32_t> chosen,
           std::span<float> weights);

}  // namespace llm
