#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampler/sampler.h"

namespace llm {

/// The steps of docs/sampling.md in plain loops, written from that page. Shares with engine/sampler
/// its options and types, and the contract's exp, which the page names.
/// @return the tokens that may be drawn with their probabilities, most likely first
/// @param excludes  XTC strikes
/// @pre finite logits or -Inf, not all -Inf; not empty
std::vector<Candidate> naive_distribution(const SamplerOptions& options,
                                          std::span<const float> logits,
                                          std::span<const TokenId> past,
                                          std::size_t n_generated = 0,
                                          std::size_t n_unbroken = SIZE_MAX, bool excludes = false);

}  // namespace llm
