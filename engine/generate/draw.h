#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "engine/generate/generate.h"
#include "tokenizer/tokenizer.h"

namespace llm {

/// Whether `id` ends a text: by the vocabulary, or by `options`.
bool ends_text(const Tokenizer& tokenizer, TokenId id, const GenerateOptions& options);

/// Makes the logits of tokens that a mask of GrammarState excludes -Inf; NaN and +Inf stay, for the
/// sampler to refuse.
void exclude(std::span<float> row, std::span<const std::uint32_t> mask);

/// The token that follows `past`, by all of `options` that concern a draw: sampler, sequence,
/// ignore_eos, logit_bias.
/// @param logits  one row, as the model made it
/// @param position  number of the draw (Sampler::sample)
/// @param mask  of GrammarState, where it does not take the token drawn without one: the draw among
/// those that it allows, with another random number (docs/sampling.md)
/// Errors: those of Sampler::sample; kNonFinite naming the grammar where it leaves no token with a
/// finite logit.
Result<TokenId> draw_token(const Tokenizer& tokenizer, std::span<const float> logits,
                           std::span<const TokenId> past, std::uint64_t position,
                           const GenerateOptions& options,
                           std::span<const std::uint32_t> mask = {});

}  // namespace llm
