#include "validate/reference/diff/likelihood.h"

#include <algorithm>
#include <cmath>

#include "base/log_sum_exp.h"
#include "validate/reference/diff/metrics.h"

namespace llm {

double negative_log_likelihood(std::span<const float> logits, TokenId target) {
  return log_sum_exp(logits) - static_cast<double>(logits[static_cast<std::size_t>(target)]);
}

std::size_t top_token(std::span<const float> logits) {
  return static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
}

MeanEstimate estimate_mean(std::span<const double> scores) {
  MeanEstimate estimate;
  estimate.count = scores.size();
  if (scores.empty()) return estimate;
  double sum = 0;
  for (const double score : scores) sum += score;
  estimate.mean = sum / static_cast<double>(scores.size());
  const std::size_t n_blocks = scores.size() / kScoreBlock;
  if (n_blocks < 2) return estimate;
  std::vector<double> means;
  double mean_of_means = 0;
  for (std::size_t b = 0; b < n_blocks; ++b) {
    double block = 0;
    for (const double score : scores.subspan(b * kScoreBlock, kScoreBlock)) block += score;
    means.push_back(block / kScoreBlock);
    mean_of_means += means.back() / static_cast<double>(n_blocks);
  }
  double squares = 0;
  for (const double mean : means) squares += (mean - mean_of_means) * (mean - mean_of_means);
  const auto n = static_cast<double>(n_blocks);
  estimate.standard_error = std::sqrt(squares / (n - 1) / n);
  return estimate;
}

double kl_divergence(std::span<const float> model, std::span<const float> reference) {
  const double model_norm = log_sum_exp(model);
  const double reference_norm = log_sum_exp(reference);
  double sum = 0;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const double log_p = static_cast<double>(reference[i]) - reference_norm;
    const double log_q = static_cast<double>(model[i]) - model_norm;
    sum += std::exp(log_p) * (log_p - log_q);
  }
  return std::max(sum, 0.0);
}

void DivergenceCollector::add(std::span<const float> model, std::span<const float> reference,
                              TokenId target) {
  kl_.push_back(kl_divergence(model, reference));
  same_top_ += top_token(model) == top_token(reference) ? 1 : 0;
  if (target < 0) return;
  const double delta = std::exp(-negative_log_likelihood(model, target)) -
                       std::exp(-negative_log_likelihood(reference, target));
  delta_p_squares_ += delta * delta;
  ++targets_;
}

Divergence DivergenceCollector::finish() const {
  Divergence d;
  d.positions = kl_.size();
  if (kl_.empty()) return d;
  d.kl_mean = estimate_mean(kl_).mean;
  std::vector<double> sorted = kl_;
  std::ranges::sort(sorted);
  d.kl_median = nearest_rank(sorted, 0.5);
  d.kl_p90 = nearest_rank(sorted, 0.9);
  d.kl_p99 = nearest_rank(sorted, 0.99);
  d.kl_p999 = nearest_rank(sorted, 0.999);
  d.kl_max = sorted.back();
  d.top1_agreement = static_cast<double>(same_top_) / static_cast<double>(kl_.size());
  if (targets_ > 0) d.delta_p_rms = std::sqrt(delta_p_squares_ / static_cast<double>(targets_));
  return d;
}

}  // namespace llm
