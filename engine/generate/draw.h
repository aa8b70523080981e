#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "engine/generate/generate.h"
#include "tokenizer/tokenizer.h"

namespace llm {

/// Whether `id` ends a text: by the vocabulary, or by `options`.
bool ends_text(const Tokenizer& tokenizer, TokenId id, const GenerateOptions& options);

/// The token that follows `past`, by all of `options` that concern a draw: sampler, sequence,
/// ignore_eos, logit_bias.
/// @param logits  one row, as the model made it
/// @param position  number of the draw (Sampler::sample)
/// Errors: those of Sampler::sample.
Result<TokenId> draw_token(const Tokenizer& tokenizer, std::span<const float> logits,
                           std::span<const TokenId> past, std::uint64_t position,
                           const GenerateOptions& options);

}  // namespace llm
