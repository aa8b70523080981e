#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "validate/selftest/path_check.h"

namespace llm {

/// Tokens of the ways to evaluate, by what a token costs in each.
struct Lengths {
  std::size_t usual;       ///< fast kernels
  std::size_t scalar;      ///< the scalar kernels
  std::size_t split;       ///< small batches, teams of threads
  std::size_t recomputed;  ///< without a cache: costs the square
};

/// A text in every way the numeric contract calls equal (PathCheck), all layers, logits of all
/// positions: batches of 1, 2, 7, 32, decode, no cache, after truncation, the last row only, every
/// instruction set, teams of 1, 2, 3 and 7 threads. The definition computes as many tokens as
/// kDefinitionWork allows.
Result<PartOutcome> check_paths(const ModePlan& plan, const Lengths& lengths,
                                std::span<const TokenId> tokens);

/// A cache type that does not go with the compute: definition, prefill, decode of few tokens, and
/// once more over what was stored.
Result<PartOutcome> check_other_cache(const ModePlan& plan, std::span<const TokenId> tokens);

/// Long texts of drawn tokens, on as many of the first layers as a second or two of the fast
/// kernels allow (small models: all; two at least), whatever context the model was trained for:
///
/// - positions past three chunks of 256 keys, and past 2,048: windows of tokens at 0, 256, 512, 768
///   and 2,048 by the definition; prefill, batches of 337, decode and every instruction set against
///   them. The windows' earlier keys and values are the fast prefill's.
/// - one call of 337 tokens, past ten blocks of attention and every tile, with an odd rest, against
///   batches of 32 and decode (by its last row alone where a row of logits costs more than the
///   layers; every row is seen by the windows, through its keys and values);
/// - truncation to every length modulo 16, and from 240 to 257: other tokens are fed and forgotten,
///   then one token alone, then three at once.
///
/// Batches of 337, decode and truncation follow each other on one sequence; where that differs,
/// each is run by itself to say which. Where prefill leaves the definition, the check names the
/// first op, and the other paths are compared with the definition alone. Errors: those of Executor
/// and Sequence but kNonFinite, which is a failed check.
Result<PartOutcome> check_long_texts(const ModePlan& plan);

/// Teams of 2, 3 and 7 threads that sleep at random around every barrier (RandomWaits), so that a
/// missing one shows: prefill of 5 and of 33 tokens, decode after it, several times, on the first
/// layers (up to the first whose products take activations in different formats, two at least),
/// against one thread, which waits for none. One that differs is looked for by what the layers
/// stored.
/// Errors: those of Executor and Sequence but kNonFinite, which is a failed check.
Result<PartOutcome> check_waits(const ModePlan& plan);

}  // namespace llm
