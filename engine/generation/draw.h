#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "engine/generation/generate.h"
#include "engine/grammar/grammar.h"
#include "tokenizer/tokenizer.h"

namespace llm {

/// Whether `id` ends a text: by the vocabulary, or by `options`.
bool ends_text(const Tokenizer& tokenizer, TokenId id, const GenerateOptions& options);

/// The token that follows `past`, by all of `options` that concern a draw: sampler, sequence,
/// ignore_eos, logit_bias.
/// @param logits  one row, as the model made it
/// @param position  number of the draw (Sampler::sample)
/// @param n_generated  of the tokens at the end of `past` (Sampler)
/// @param next  what may come (docs/sampling.md, "Under a grammar"); null: every token
/// Errors: those of Sampler::sample and `next`; kNonFinite naming the grammar where it leaves no
/// token with a finite logit.
Result<TokenId> draw_token(const Tokenizer& tokenizer, std::span<const float> logits,
                           std::span<const TokenId> past, std::uint64_t position,
                           std::size_t n_generated, const GenerateOptions& options,
                           NextTokens* next = nullptr);

}  // namespace llm
