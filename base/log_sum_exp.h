#pragma once

#include <span>

namespace llm {

/// log(sum exp(logit)) in f64, shifted by the largest logit so that nothing overflows. The one
/// place where log probabilities come from: logit - log_sum_exp(logits). @pre not empty
double log_sum_exp(std::span<const float> logits);

}  // namespace llm
