#ifndef LLM_VALIDATE_QUALITY_SIGNALS_H_
#define LLM_VALIDATE_QUALITY_SIGNALS_H_

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

enum class GateVerdict { kPass, kFail, kInconclusive };

struct PairedGate {
  GateVerdict verdict = GateVerdict::kInconclusive;
  double mean = 0;   ///< of the differences
  double lower = 0;  ///< 95 % interval of the mean
  double upper = 0;
};

/// Whether a model's nll is worse than a baseline's by more than `limit`, from per-token
/// differences (its nll - the baseline's on the same tokens): blocks of 32 consecutive tokens are
/// drawn with replacement 2000 times by `seed`, and the 2.5th and 97.5th percentile of the means
/// compared with the limit: both at most the limit is a pass, both above a failure, else more text
/// is needed. Perplexity grows by the factor exp(mean). Fewer than two blocks are inconclusive
/// unless all differences are 0; so is a NaN.
PairedGate paired_gate(std::span<const double> differences, double limit, std::uint64_t seed);

}  // namespace llm

#endif  // LLM_VALIDATE_QUALITY_SIGNALS_H_
