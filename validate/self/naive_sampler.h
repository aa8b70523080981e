#ifndef LLM_VALIDATE_SELF_NAIVE_SAMPLER_H_
#define LLM_VALIDATE_SELF_NAIVE_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampler/sampler.h"

namespace llm {

/// The steps of docs/sampling.md in plain loops, written from that page. Shares with engine/sampler
/// its options and types, and the contract's exp, which the page names.
/// @return the tokens that may be drawn with their probabilities, most likely first
/// @pre finite logits or -Inf, not all -Inf; not empty
std::vector<Candidate> naive_distribution(const SamplerOptions& options,
                                          std::span<const float> logits,
                                          std::span<const TokenId> past);

/// Philox4x32-10 as its paper states it (Salmon et al., SC11), 53 bits in [0, 1).
double naive_uniform(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position);

/// The token of `candidates` that a uniform number draws. @pre not empty
TokenId naive_draw(std::span<const Candidate> candidates, double uniform);

}  // namespace llm

#endif  // LLM_VALIDATE_SELF_NAIVE_SAMPLER_H_
