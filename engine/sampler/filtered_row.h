#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "engine/sampler/descending_weights.h"
#include "engine/sampler/sampler.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// A token and its logit.
struct Scored {
  TokenId id;
  float logit;
};

/// The k most likely tokens, in order: the larger logit first, the lower id among equals.
std::vector<Scored> most_likely(std::span<const float> logits, std::size_t k);

/// Where the first of those equal to `value` is, which is there.
std::size_t index_of(std::span<const float> values, float value);

/// What a draw needs memory for; kept for the thread's next one.
struct DrawMemory {
  std::vector<float> scores;
  std::vector<float> weights;
  DescendingWeights ordered;
};

/// What the filters leave of a row of logits, ready to be drawn from. Tokens are numbered as they
/// come, or, once top-k has sorted them, in order; equal scores are ordered by that number.
class FilteredRow {
 public:
  /// @param logits  borrowed. @param largest  of them, finite. @param excludes  XTC strikes
  FilteredRow(std::span<const float> logits, float largest, const SamplerOptions& options,
              bool excludes, DrawMemory& memory);

  /// All that may be drawn, in order.
  std::vector<Candidate> candidates() const;
  TokenId draw(double uniform) const;

 private:
  void apply_temperature(float temperature);
  float temperature_of(const SamplerOptions& options) const;
  /// How many scores are at most so many standard deviations below the largest.
  std::size_t count_near(float n_sigma) const;
  void keep_top_k(std::size_t k);
  /// Weights of the scores' distances to the largest, divided by a temperature.
  void weigh(float temperature);
  void keep_top_p(float p);
  void keep_min_p(float p);
  void keep_typical(float p);
  void exclude_top_choices(float threshold);
  /// The kept tokens in order, by their numbers.
  std::vector<Scored> in_order() const { return most_likely(scores_, kept_); }
  /// Of tokens in order: the mean of the distances to the largest score, by probability.
  double mean_distance(std::span<const Scored> tokens) const;
  /// Leaves these, which are in order.
  void choose(std::span<const Scored> tokens);
  /// The draw, where it is known to fall on a weight of least .. most. @return nothing: it does not
  std::optional<TokenId> draw_among(double uniform, float least, float most) const;

  /// Those of the kept tokens.
  std::span<const float> ordered() const { return memory_.ordered.all().first(kept_); }
  /// Adds the probabilities of weights above `most`, in any order. @return how many those are
  std::size_t add_above(std::span<const float> weights, float most, double& mass) const;
  float probability(std::size_t i) const { return weights_[i] / total_; }
  TokenId id(std::size_t i) const { return ids_.empty() ? static_cast<TokenId>(i) : ids_[i]; }
  TokenId most_likely_id() const { return id(index_of(scores_, largest_)); }

  DrawMemory& memory_;
  std::span<const float> scores_;   ///< what orders the tokens
  float largest_;                   ///< score
  std::vector<TokenId> ids_;        ///< of the scores; none: 0, 1, ...
  std::span<const float> weights_;  ///< of the scores
  std::size_t kept_;                ///< leading tokens, in order
  float total_;                     ///< the sum of their weights
};

}  // namespace llm
