#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "validate/self/mode_plan.h"

namespace llm {

/// Tokens of the ways to evaluate, by what a token costs in each.
struct Lengths {
  std::size_t usual;       ///< fast kernels
  std::size_t scalar;      ///< the scalar kernels
  std::size_t split;       ///< small batches, teams of threads
  std::size_t recomputed;  ///< without a cache: costs the square
};

/// A text in every way the numeric contract calls equal, all layers, logits of all positions bit
/// for bit: batches of 1, 2, 7, 32, decode, no cache, after truncation, the last row only, every
/// instruction set, teams of 1, 2, 3 and 7 threads.
///
/// The definition's logits of as many tokens as kDefinitionWork allows are what everything is
/// compared with, prefill's beyond. Where prefill itself differs from the definition, that is the
/// one check that says so, with the first op that differs; paths that give prefill's wrong bits are
/// counted there and not blamed by themselves, the others are held against the definition alone.
/// Errors: those of Executor and Sequence but kNonFinite, which is a failed check.
Result<PartOutcome> check_paths(const ModePlan& plan, const Lengths& lengths,
                                std::span<const TokenId> tokens);

/// A cache type that does not go with the compute: definition, prefill, decode of few tokens, and
/// once more over what was stored.
Result<PartOutcome> check_other_cache(const ModePlan& plan, std::span<const TokenId> tokens);

}  // namespace llm
