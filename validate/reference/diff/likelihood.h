#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tokenizer/vocab_spec.h"

namespace llm {

/// -log softmax(logits)[target] in nats, in f64. @pre target is an index of logits
double negative_log_likelihood(std::span<const float> logits, TokenId target);

/// Index of the largest logit; ties: the lowest. @pre not empty
std::size_t top_token(std::span<const float> logits);

/// A mean with the error that sampling other text would give it.
struct MeanEstimate {
  std::size_t count = 0;
  double mean = 0;
  double standard_error = 0;  ///< from the means of consecutive blocks, since neighbouring tokens
                              ///< are no independent draws; 0 for fewer than two blocks
};

inline constexpr std::size_t kScoreBlock = 32;  ///< tokens of a block

/// Mean of per-token scores (NLL, or paired differences of NLL), summed in f64 in order. A last
/// block that is not full takes no part in the standard error. Perplexity is exp(mean NLL).
MeanEstimate estimate_mean(std::span<const double> scores);

/// How the distributions of one model differ from a reference's, over positions of a text.
struct Divergence {
  std::size_t positions = 0;
  double kl_mean = 0;  ///< KL(reference || model) in nats
  double kl_median = 0;
  double kl_p90 = 0;
  double kl_p99 = 0;
  double kl_p999 = 0;
  double kl_max = 0;
  double top1_agreement = 0;  ///< share of positions with the same most likely token
  double delta_p_rms = 0;     ///< of p_model - p_reference of the token that really follows
};

/// Collects positions one by one. All arithmetic in f64 on the f32 logits as they are.
class DivergenceCollector {
 public:
  /// @pre equal sizes, not empty; a target (or -1: none, not counted in delta_p) is an index
  void add(std::span<const float> model, std::span<const float> reference, TokenId target);
  /// Quantiles by nearest rank. All zero without positions.
  Divergence finish() const;

 private:
  std::vector<double> kl_;
  std::size_t same_top_ = 0;
  std::size_t targets_ = 0;
  double delta_p_squares_ = 0;
};

/// KL(reference || model) = sum p (log p - log q) in nats, never below 0 (rounding is clamped).
/// @pre equal sizes, not empty
double kl_divergence(std::span<const float> model, std::span<const float> reference);

}  // namespace llm
