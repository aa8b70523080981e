#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/vocab_spec.h"

namespace llm {

/// exp(mean nll); 1 for no tokens.
double perplexity(std::span<const double> nll);

/// Mean over all windows of 20 neighbouring tokens (stride 1) of 1 - unique / 20. A shorter text is
/// one window of its own length; an empty one gives 0.
double repetition(std::span<const TokenId> tokens);

/// Unique n-grams / n-grams. 1 for a text without any. @pre n >= 1
double distinct(std::span<const TokenId> tokens, std::size_t n);

/// Share of the runs that equal the first, the first included. 1 for no runs.
double consistency(std::span<const std::vector<TokenId>> runs);

}  // namespace llm
