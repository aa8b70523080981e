#include "engine/sampler/filtered_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/cpu_features.h"
#include "engine/sampler/row_sample.h"
#include "quant/kernels/kernel_table.h"
#include "quant/numerics/f64_functions.h"

namespace llm {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

bool before(const Scored& a, const Scored& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

std::int32_t bits_of(float x) { return std::bit_cast<std::int32_t>(x); }

const KernelTable& kernels() {
  static const KernelTable& best = *kernel_table(best_isa());
  return best;
}

}  // namespace

std::size_t index_of(std::span<const float> values, float value) {
  return static_cast<std::size_t>(std::ranges::find(values, value) - values.begin());
}

std::vector<Scored> most_likely(std::span<const float> logits, std::size_t k) {
  std::vector<Scored> row;
  k = std::min(k, logits.size());
  if (k == 0) return row;
  const auto take = [&](float from) {
    for_each_at_least(logits, from, [&](std::size_t i) {
      row.push_back({static_cast<TokenId>(i), logits[i]});
    });
  };
  take(about_the_largest(logits, 2 * k + logits.size() / 256));  // too few is rare
  if (row.size() < k) {
    row.clear();
    take(-kInf);
  }
  const auto middle = row.begin() + static_cast<std::ptrdiff_t>(k);
  std::ranges::partial_sort(row, middle, before);
  row.erase(middle, row.end());
  return row;
}

FilteredRow::FilteredRow(std::span<const float> logits, float largest,
                         const SamplerOptions& options, bool excludes, DrawMemory& memory)
    : memory_(memory), scores_(logits), largest_(largest), kept_(logits.size()) {
  const std::size_t near = count_near(options.top_n_sigma);
  const bool is_dynamic = options.dynatemp_range > 0.0F;
  if (options.order == SamplerOrder::kHf) {
    if (is_dynamic) weigh(1.0F);
    apply_temperature(temperature_of(options));
  }
  keep_top_k(options.top_k == 0 ? near : std::min(options.top_k, near));
  kept_ = scores_.size();
  weigh(1.0F);
  keep_typical(options.typical_p);
  keep_top_p(options.top_p);
  keep_min_p(options.min_p);
  if (excludes) exclude_top_choices(options.xtc_threshold);
  if (options.order == SamplerOrder::kLlamaCpp) {
    const float temperature = temperature_of(options);
    if (temperature != 1.0F) weigh(temperature);
  }
  total_ = lane_sum(ordered());
}

/// Distances to the largest logit are scaled, not logits: no temperature can make Inf - Inf of
/// them.
void FilteredRow::apply_temperature(float temperature) {
  if (temperature == 1.0F) return;
  memory_.scores.resize(scores_.size());
  std::ranges::transform(scores_, memory_.scores.begin(),
                         [&](float score) { return (score - largest_) / temperature; });
  scores_ = memory_.scores;
  largest_ = 0.0F;
}

/// Tang et al., arXiv:2411.07641. Of finite logits, as llama.cpp has it.
std::size_t FilteredRow::count_near(float n_sigma) const {
  if (n_sigma <= 0.0F) return scores_.size();
  const auto distance = [this](float score) { return static_cast<double>(score - largest_); };
  double n = 0;
  double sum = 0;
  for (const float score : scores_) {
    if (std::isinf(score)) continue;
    n += 1;
    sum += distance(score);
  }
  const double mean = sum / n;
  double squares = 0;
  for (const float score : scores_) {
    const double beside = distance(score) - mean;
    if (!std::isinf(score)) squares += beside * beside;
  }
  const double least = -static_cast<double>(n_sigma) * std::sqrt(squares / n);
  return static_cast<std::size_t>(
      std::ranges::count_if(scores_, [&](float score) { return distance(score) >= least; }));
}

void FilteredRow::keep_top_k(std::size_t k) {
  if (k == 0 || k >= scores_.size()) return;
  const std::vector<Scored> top = most_likely(scores_, k);
  memory_.scores.clear();
  for (const Scored& token : top) {
    ids_.push_back(token.id);
    memory_.scores.push_back(token.logit);
  }
  scores_ = memory_.scores;
}

void FilteredRow::weigh(float temperature) {
  memory_.weights.resize(scores_.size());
  kernels().exp_distances(scores_.data(), scores_.size(), largest_, temperature,
                          memory_.weights.data());
  weights_ = memory_.weights;
  memory_.ordered.set(weights_);
}

/// Holtzman et al., arXiv:1904.09751: drops a token when the probability of those before it has
/// reached p. The first always stays.
void FilteredRow::keep_top_p(float p) {
  if (p >= 1.0F) return;
  const std::span<const float> weights = ordered();
  const float enough = p * lane_sum(weights);
  float mass = weights[0];
  std::size_t kept = 1;
  while (kept < weights.size() && mass < enough) mass += weights[kept++];
  kept_ = kept;
}

/// Nguyen et al., arXiv:2407.01082: drops a token below p times the first, whose weight is 1.
void FilteredRow::keep_min_p(float p) {
  if (p <= 0.0F) return;
  const auto kept = std::ranges::count_if(weights_, [p](float weight) { return weight >= p; });
  kept_ = std::min(kept_, static_cast<std::size_t>(kept));
}

double FilteredRow::mean_distance(std::span<const Scored> tokens) const {
  const float total = lane_sum(ordered());
  double mean = 0;
  for (const Scored& token : tokens) {
    const float weight = weights_[static_cast<std::size_t>(token.id)];
    if (weight > 0.0F)
      mean += static_cast<double>(weight / total) * static_cast<double>(token.logit - largest_);
  }
  return mean;
}

/// Meister et al., arXiv:2202.00666: keeps those whose surprise is nearest to the entropy, until
/// they make up p. Surprise and entropy have the same logarithm of the sum in them, so their
/// difference is that of the mean distance and the token's.
void FilteredRow::keep_typical(float p) {
  if (p >= 1.0F) return;
  const std::vector<Scored> tokens = in_order();
  const double mean = mean_distance(tokens);
  const float total = lane_sum(ordered());
  std::vector<std::pair<double, std::size_t>> by_difference;
  for (const Scored& token : tokens)
    by_difference.emplace_back(std::abs(mean - static_cast<double>(token.logit - largest_)),
                               by_difference.size());
  std::ranges::sort(by_difference);
  std::vector<std::size_t> kept;
  double mass = 0;
  for (const auto& [difference, i] : by_difference) {
    kept.push_back(i);
    mass += static_cast<double>(weights_[static_cast<std::size_t>(tokens[i].id)] / total);
    if (mass > static_cast<double>(p)) break;
  }
  std::ranges::sort(kept);
  std::vector<Scored> typical;
  for (const std::size_t i : kept) typical.push_back(tokens[i]);
  choose(typical);
}

/// "Exclude top choices": Weidmann 2024, oobabooga/text-generation-webui, request 6335. Of the
/// tokens with at least the threshold's probability the last one stays.
void FilteredRow::exclude_top_choices(float threshold) {
  const std::vector<Scored> tokens = in_order();
  const float total = lane_sum(ordered());
  std::size_t n = 0;
  while (n < tokens.size() && weights_[static_cast<std::size_t>(tokens[n].id)] / total >= threshold)
    ++n;
  if (n > 1) choose(std::span(tokens).subspan(n - 1));
}

void FilteredRow::choose(std::span<const Scored> tokens) {
  std::vector<TokenId> ids;
  for (const Scored& token : tokens) ids.push_back(id(static_cast<std::size_t>(token.id)));
  ids_ = std::move(ids);
  memory_.scores.clear();
  for (const Scored& token : tokens) memory_.scores.push_back(token.logit);
  scores_ = memory_.scores;
  largest_ = scores_.front();
  kept_ = scores_.size();
  weigh(1.0F);
}

/// Zhu et al., arXiv:2309.02772, as llama.cpp has it: by the entropy's share of the largest that so
/// many tokens can have.
float FilteredRow::temperature_of(const SamplerOptions& options) const {
  if (options.dynatemp_range <= 0.0F || kept_ < 2) return options.temperature;
  constexpr float kLeast = 0x1p-100F;
  const double entropy =
      contract::log(static_cast<double>(lane_sum(ordered()))) - mean_distance(in_order());
  const double share =
      std::clamp(entropy / contract::log(static_cast<double>(kept_)), 0x1p-60, 1.0);
  const float low = std::max(0.0F, options.temperature - options.dynatemp_range);
  const float high = options.temperature + options.dynatemp_range;
  const auto part =
      static_cast<float>(contract::power(share, static_cast<double>(options.dynatemp_exponent)));
  return std::max(low + (high - low) * part, kLeast);
}

std::vector<Candidate> FilteredRow::candidates() const {
  std::vector<Candidate> result;
  for (const Scored& token : in_order()) {
    const auto i = static_cast<std::size_t>(token.id);
    result.push_back({id(i), probability(i)});
  }
  return result;
}

TokenId FilteredRow::draw(double uniform) const {
  // About where: a block of ranks, by weights that may be off by half a class each.
  constexpr std::size_t kBlock = 64;
  constexpr std::size_t kMargin = 64;
  const std::span<const float> weights = memory_.ordered.all();
  const double wanted = uniform * static_cast<double>(total_);
  double mass = 0;
  std::size_t rank = 0;
  for (; rank + kBlock < kept_; rank += kBlock) {
    double block = 0;
#pragma omp simd reduction(+ : block)
    for (std::size_t i = 0; i < kBlock; ++i) block += static_cast<double>(weights[rank + i]);
    if (mass + block > wanted) break;
    mass += block;
  }
  const std::size_t end = rank + kBlock + kMargin;
  const float least = end < weights.size() ? weights[end] : 0.0F;
  const float most = rank > kMargin ? weights[rank - kMargin] : kInf;
  const auto drawn = draw_among(uniform, least, most);
  return drawn ? *drawn : *draw_among(uniform, 0.0F, kInf);
}

std::size_t FilteredRow::add_above(std::span<const float> weights, float most, double& mass) const {
  const float* w = weights.data();
  const std::size_t n = weights.size();
  const float total = total_;
  double sum = 0;
  std::int32_t count = 0;
#pragma omp simd reduction(+ : sum, count)
  for (std::size_t i = 0; i < n; ++i) {
    // Integers compare as the floats do, which are not negative, and leave no branch.
    const std::int32_t is_above = -static_cast<std::int32_t>(bits_of(w[i]) > bits_of(most));
    sum += static_cast<double>(std::bit_cast<float>(bits_of(w[i] / total) & is_above));
    count -= is_above;
  }
  mass += sum;
  return static_cast<std::size_t>(count);
}

std::optional<TokenId> FilteredRow::draw_among(double uniform, float least, float most) const {
  // Probabilities from 2^-29 on are multiples of 2^-52, so their sums, which are below 2, are exact
  // in f64 and the same in any order. Below that, the order is kept.
  if (most / total_ < 0x1p-29F) return std::nullopt;
  double mass = 0;
  std::size_t rank = 0;
  // Weights of zero, of which a mask leaves most, change no sum: they need no order.
  const bool is_rest = least == 0;
  if (is_rest) least = std::numeric_limits<float>::denorm_min();
  std::vector<Scored> tokens;
  constexpr std::size_t kBlock = 64;
  for (std::size_t begin = 0; begin < weights_.size(); begin += kBlock) {
    const auto block = weights_.subspan(begin, std::min(kBlock, weights_.size() - begin));
    std::int32_t any = 0;
    for (const float weight : block) any |= bits_of(weight) >= bits_of(least) ? 1 : 0;
    if (any == 0) continue;
    rank += add_above(block, most, mass);
    for_each_at_least(block, least, [&](std::size_t i) {
      if (block[i] > most) return;
      tokens.push_back({static_cast<TokenId>(begin + i), scores_[begin + i]});
    });
  }
  if (rank >= kept_ || (rank > 0 && uniform < mass)) return std::nullopt;
  std::ranges::sort(tokens, before);
  for (const Scored& token : tokens) {
    const auto i = static_cast<std::size_t>(token.id);
    mass += static_cast<double>(probability(i));
    if (uniform < mass) return id(i);
    // Rounded probabilities may add up to a little less than the draw.
    if (++rank == kept_) return most_likely_id();
  }
  if (is_rest) return most_likely_id();
  return std::nullopt;
}

}  // namespace llm
