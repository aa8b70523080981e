#include "engine/generation/draw.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace llm {

namespace {

/// How many tokens are drawn before the mask is asked for.
constexpr std::uint64_t kFreeAttempts = 3;
constexpr float kNone = -std::numeric_limits<float>::infinity();

/// NaN and +Inf stay, for the sampler to refuse.
void exclude(std::span<float> row, std::span<const std::uint32_t> mask) {
  for (std::size_t id = 0; id < row.size(); ++id) {
    if (!allows(mask, static_cast<TokenId>(id)) && std::isfinite(row[id])) row[id] = kNone;
  }
}

/// A row as the options change it.
std::vector<float> biased(std::span<const float> logits, const Tokenizer& tokenizer,
                          const GenerateOptions& options, bool is_too_short) {
  std::vector<float> row(logits.begin(), logits.end());
  if (options.logit_bias != nullptr) {
    for (const LogitBias& bias : *options.logit_bias)
      row[static_cast<std::size_t>(bias.id)] += bias.added;
  }
  if (options.ignore_eos || is_too_short) {
    for (const auto& ends : {tokenizer.spec().end_of_generation, options.stop_tokens}) {
      for (const TokenId id : ends) row[static_cast<std::size_t>(id)] = kNone;
    }
  }
  return row;
}

/// How many tokens there are since the last one that breaks repetitions: whose text has a character
/// of "\n:\"*", llama.cpp's default.
std::size_t unbroken(const Tokenizer& tokenizer, std::span<const TokenId> past) {
  std::size_t n = 0;
  while (n < past.size() &&
         tokenizer.piece_text(past[past.size() - 1 - n]).find_first_of("\n:\"*") ==
             std::string::npos)
    ++n;
  return n;
}

/// Either the grammar has no text that goes on here, or no logit that it allows is finite.
Error nothing_allowed(std::span<const std::uint32_t> mask, std::size_t n_vocab,
                      std::uint64_t position) {
  for (std::size_t id = 0; id < n_vocab; ++id) {
    if (!allows(mask, static_cast<TokenId>(id))) continue;
    return Error{ErrorCode::kNonFinite, "grammar",
                 fmt::format("position {}: found no finite logit of a token that it allows, need "
                             "one; no token was sampled",
                             position)};
  }
  return Error{
      ErrorCode::kUsage, "grammar",
      fmt::format(
          "position {}: found no token that it allows, need one: no match continues from there",
          position)};
}

bool has_any(std::span<const float> row) {
  return std::ranges::any_of(row, [](float logit) { return logit != kNone; });
}

}  // namespace

bool ends_text(const Tokenizer& tokenizer, TokenId id, const GenerateOptions& options) {
  return tokenizer.is_end_of_generation(id) ||
         std::ranges::find(options.stop_tokens, id) != options.stop_tokens.end();
}

Result<TokenId> draw_token(const Tokenizer& tokenizer, std::span<const float> logits,
                           std::span<const TokenId> past, std::uint64_t position,
                           std::size_t n_generated, const GenerateOptions& options,
                           NextTokens* next) {
  const std::size_t n_unbroken =
      options.sampler.dry_multiplier > 0.0F ? unbroken(tokenizer, past) : 0;
  const auto sample = [&](std::span<const float> row, std::uint64_t attempt) {
    return Sampler(options.sampler, options.sequence ^ attempt << 62, n_generated, n_unbroken)
        .sample(row, past, position);
  };
  std::vector<float> changed;
  // A grammar says itself where its text may end.
  const bool is_too_short = next == nullptr && n_generated < options.sampler.min_tokens;
  if (options.ignore_eos || is_too_short || options.logit_bias != nullptr)
    changed = biased(logits, tokenizer, options, is_too_short);
  for (std::uint64_t attempt = 0; attempt < kFreeAttempts; ++attempt) {
    const auto id = sample(changed.empty() ? logits : changed, attempt);
    if (!id.ok() || next == nullptr) return id;
    LLM_TRY(const bool is_taken, next->takes(*id));
    if (is_taken) return id;
    if (changed.empty()) changed.assign(logits.begin(), logits.end());
    changed[static_cast<std::size_t>(*id)] = kNone;
    if (!has_any(changed)) break;
  }
  LLM_TRY(const auto mask, next->mask());
  exclude(changed, mask);
  // A mask may allow a token that the grammar does not take (docs/structured_output.md).
  while (has_any(changed)) {
    const auto id = sample(changed, kFreeAttempts);
    if (!id.ok()) return id;
    LLM_TRY(const bool is_taken, next->takes(*id));
    if (is_taken) return id;
    changed[static_cast<std::size_t>(*id)] = kNone;
  }
  return nothing_allowed(mask, logits.size(), position);
}

}  // namespace llm
