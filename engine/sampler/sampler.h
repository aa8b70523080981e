#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// The order of temperature and filters (top-n-sigma, top-k, typical-p, top-p, min-p, XTC). They do
/// not commute: a temperature above 1 flattens the distribution, so more tokens pass a top-p or
/// min-p after it.
enum class SamplerOrder {
  kHf,        ///< temperature, the filters (transformers' logits warpers)
  kLlamaCpp,  ///< the filters, temperature (llama.cpp's default chain)
};

/// What turns logits into a token (docs/sampling.md). The defaults filter nothing.
struct SamplerOptions {
  float temperature = 1.0F;     ///< >= 0; 0 is greedy: the largest logit, ties to the lower id
  std::size_t top_k = 0;        ///< keep the k most likely; 0: all
  float top_n_sigma = 0.0F;     ///< keep what is at most n deviations below the largest; <= 0: all
  float top_p = 1.0F;           ///< in [0, 1]: keep a token while the mass before it is < p
  float min_p = 0.0F;           ///< in [0, 1]: keep what is at least p times the most likely
  float repeat_penalty = 1.0F;  ///< > 0; divides positive, multiplies negative logits of the past
  std::int64_t repeat_last_n = 64;  ///< how much past: 0 none, -1 all
  float presence_penalty = 0.0F;    ///< taken from the logit of what was generated before
  float frequency_penalty = 0.0F;   ///< and this much for each time it was
  float dry_multiplier = 0.0F;      ///< >= 0; taken from what would go on a repetition; 0: nothing
  float dry_base = 1.75F;           ///< >= 1; times this for each token beyond
  std::size_t dry_allowed_length = 2;    ///< this many, which may be repeated
  std::int64_t dry_penalty_last_n = -1;  ///< how much past is looked through: 0 none, -1 all
  float typical_p = 1.0F;                ///< in [0, 1]: keep the most typical that make up p
  float xtc_probability = 0.0F;          ///< in [0, 1]: how often the most likely are excluded
  float xtc_threshold = 0.1F;            ///< those at least so likely, but for the last of them
  float dynatemp_range = 0.0F;           ///< >= 0: temperatures so far about `temperature`,
  float dynatemp_exponent = 1.0F;        ///< >= 0: by the row's entropy to this power
  std::size_t min_tokens = 0;            ///< nothing ends a text before (draw_token())
  std::uint64_t seed = 0;
  SamplerOrder order = SamplerOrder::kHf;
};

/// What llmrun draws with unless told otherwise (docs/sampling.md).
inline constexpr SamplerOptions kUsualSampling = {
    .temperature = 0.8F, .top_k = 40, .top_p = 0.95F, .min_p = 0.05F};

/// A token that may be drawn, with its probability among those that may.
struct Candidate {
  TokenId id;
  float probability;
};

/// Draws tokens. Has no state that changes: a draw depends on the logits, the past, and
/// (seed, sequence, position) alone, so it can be repeated, in any order, anywhere.
class Sampler {
 public:
  /// @param sequence  tells independent texts of one seed apart
  /// @param n_generated  how many tokens of the text came before: so many at the end of every past
  ///                     (all of it, where it has fewer) are counted by the penalties that do not
  ///                     see the prompt
  /// @param n_unbroken  how many tokens at the end of every past have come since the last one that
  ///                    breaks repetitions (DRY)
  /// @pre the options are in the ranges noted there
  explicit Sampler(const SamplerOptions& options, std::uint64_t sequence = 0,
                   std::size_t n_generated = 0, std::size_t n_unbroken = SIZE_MAX);

  const SamplerOptions& options() const { return options_; }

  /// The token that follows `past`.
  /// @param logits  one row, [n_vocab], not empty
  /// @param past  every token before it, prompt included; only the last repeat_last_n are read, and
  ///              those that were generated
  /// @param position  the new token's position in the sequence
  /// Errors: kNonFinite naming the position when a logit is NaN or +Inf, or all are -Inf; nothing
  /// is drawn then. Cost: one pass over the row, and a sort of what passes top-k; with typical_p,
  /// XTC and dynatemp a sort of all that is left there.
  Result<TokenId> sample(std::span<const float> logits, std::span<const TokenId> past,
                         std::uint64_t position) const;

  /// What sample() draws from: the tokens that pass every filter, most likely first (ties: lower id
  /// first), probabilities in f32 with the 16-lane sum of docs/numerics.md. One token for greedy.
  Result<std::vector<Candidate>> distribution(std::span<const float> logits,
                                              std::span<const TokenId> past,
                                              std::uint64_t position) const;

 private:
  SamplerOptions options_;
  std::uint64_t sequence_;
  std::size_t n_generated_;
  std::size_t n_unbroken_;
};

/// What XTC's decision is drawn with: `sequence` XOR this.
inline constexpr std::uint64_t kXtcSequence = std::uint64_t{1} << 61;

/// A uniform number in [0, 1) with 53 random bits: Philox4x32-10 (Salmon et al., "Parallel random
/// numbers: as easy as 1, 2, 3", SC11) of counter (position, sequence) under the key `seed`.
double uniform_draw(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position);

/// A token's natural log probability.
struct TokenLogprob {
  TokenId id;
  double logprob;
};

/// Log probabilities over the whole row as the model gave it: before penalty, temperature, filters.
/// In f64, logit - log_sum_exp(logits): the negative of what llmcheck scores texts by.
struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  ///< most likely first, ties: lower id first
};

/// @pre logits passed sample(); chosen is an index of it
Logprobs logprobs_of(std::span<const float> logits, TokenId chosen, std::size_t n_top);

}  // namespace llm
