#include "tests/engine/naive_sampler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/float_environment.h"
#include "quant/numerics/arithmetic.h"
#include "quant/numerics/f64_functions.h"

namespace llm {
namespace {

struct Entry {
  TokenId id;
  float logit;
};
using Entries = std::vector<Entry>;

/// 16 lanes, element i in lane i mod 16, added as (l, l+8), (l, l+4), (l, l+2), (l, l+1).
float sum_of(const std::vector<float>& values) {
  float lane[16] = {};
  for (std::size_t i = 0; i < values.size(); ++i) lane[i % 16] += values[i];
  float eight[8];
  for (int l = 0; l < 8; ++l) eight[l] = lane[l] + lane[l + 8];
  float four[4];
  for (int l = 0; l < 4; ++l) four[l] = eight[l] + eight[l + 4];
  return ((four[0] + four[2]) + (four[1] + four[3]));
}

/// exp of each logit's distance to the first one, the largest.
std::vector<float> weights(const Entries& sorted) {
  std::vector<float> values;
  for (const Entry& entry : sorted) {
    values.push_back(contract::exp(entry.logit - sorted[0].logit));
  }
  return values;
}

void divide_distances(Entries& entries, float temperature) {
  if (temperature == 1) return;
  float largest = entries[0].logit;
  for (const Entry& entry : entries) largest = std::max(largest, entry.logit);
  for (Entry& entry : entries) entry.logit = (entry.logit - largest) / temperature;
}

std::size_t kept_by_top_p(const Entries& sorted, float p) {
  const std::vector<float> w = weights(sorted);
  const float reached = p * sum_of(w);
  float mass_before = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (i > 0 && mass_before >= reached) return i;
    mass_before += w[i];
  }
  return w.size();
}

std::size_t kept_by_min_p(const Entries& sorted, float p) {
  const std::vector<float> w = weights(sorted);
  for (std::size_t i = 1; i < w.size(); ++i) {
    if (w[i] < p) return i;
  }
  return w.size();
}

std::size_t count_by_sigma(const Entries& row, float n) {
  float largest = row[0].logit;
  for (const Entry& entry : row) largest = std::max(largest, entry.logit);
  std::vector<double> finite;
  for (const Entry& entry : row)
    if (std::isfinite(entry.logit)) finite.push_back(static_cast<double>(entry.logit - largest));
  double mean = 0;
  for (const double d : finite) mean += d;
  mean /= static_cast<double>(finite.size());
  double variance = 0;
  for (const double d : finite) variance += (d - mean) * (d - mean);
  variance /= static_cast<double>(finite.size());
  std::size_t count = 0;
  for (const double d : finite) count += d >= -static_cast<double>(n) * std::sqrt(variance) ? 1 : 0;
  return count;
}

/// Probabilities, in f32, and the mean distance to the largest logit, in f64.
struct Shares {
  std::vector<float> p;
  double mean_distance = 0;
};
Shares shares(const Entries& sorted) {
  Shares found{weights(sorted)};
  const float total = sum_of(found.p);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    found.p[i] /= total;
    if (found.p[i] > 0)
      found.mean_distance +=
          static_cast<double>(found.p[i]) * static_cast<double>(sorted[i].logit - sorted[0].logit);
  }
  return found;
}

Entries kept_by_typical_p(const Entries& sorted, float p) {
  const Shares all = shares(sorted);
  std::multimap<double, std::size_t> by_difference;  // equal ones as they come
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const auto distance = static_cast<double>(sorted[i].logit - sorted[0].logit);
    by_difference.emplace(std::abs(all.mean_distance - distance), i);
  }
  std::set<std::size_t> kept;
  double before = 0;
  for (const auto& [difference, i] : by_difference) {
    if (!kept.empty() && before > static_cast<double>(p)) break;
    kept.insert(i);
    before += static_cast<double>(all.p[i]);
  }
  Entries typical;
  for (const std::size_t i : kept) typical.push_back(sorted[i]);
  return typical;
}

void exclude_top_choices(Entries& sorted, float threshold) {
  const Shares all = shares(sorted);
  std::size_t last = 0;
  for (std::size_t i = 0; i < sorted.size() && all.p[i] >= threshold; ++i) last = i;
  if (threshold <= 0.5F)
    sorted.erase(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(last));
}

float temperature_of(const SamplerOptions& options, Entries row) {
  if (options.dynatemp_range == 0 || row.size() < 2) return options.temperature;
  std::ranges::stable_sort(row, [](const Entry& a, const Entry& b) { return a.logit > b.logit; });
  const double entropy =
      contract::log(static_cast<double>(sum_of(weights(row)))) - shares(row).mean_distance;
  double share = entropy / contract::log(static_cast<double>(row.size()));
  share = std::min(std::max(share, 0x1p-60), 1.0);
  const float low = std::max(options.temperature - options.dynatemp_range, 0.0F);
  const float high = options.temperature + options.dynatemp_range;
  const double part = contract::power(share, static_cast<double>(options.dynatemp_exponent));
  return std::max(low + (high - low) * static_cast<float>(part), 0x1p-100F);
}

/// How many tokens before past[i] are those before its end.
std::size_t repeated_before(std::span<const TokenId> past, std::size_t i) {
  std::size_t length = 0;
  while (length < i && past[i - 1 - length] == past[past.size() - 1 - length]) ++length;
  return length;
}

void penalize_repetitions(Entries& row, std::span<const TokenId> past, std::size_t n_unbroken,
                          const SamplerOptions& options) {
  if (options.dry_penalty_last_n >= 0)
    past = past.last(
        std::min<std::size_t>(static_cast<std::size_t>(options.dry_penalty_last_n), past.size()));
  const std::size_t allowed = options.dry_allowed_length;
  if (past.size() <= allowed || n_unbroken < allowed) return;
  std::map<TokenId, std::size_t> longest;
  for (std::size_t i = 1; i < past.size(); ++i)
    longest[past[i]] = std::max(longest[past[i]], repeated_before(past, i));
  for (auto [id, length] : longest) {
    length = std::min(length, n_unbroken);
    if (length < allowed) continue;
    float lost = options.dry_multiplier;
    for (; length > allowed && lost < 1e30F; --length) lost *= options.dry_base;
    row[static_cast<std::size_t>(id)].logit -= lost;
  }
}

}  // namespace

std::vector<Candidate> naive_distribution(const SamplerOptions& options,
                                          std::span<const float> logits,
                                          std::span<const TokenId> past, std::size_t n_generated,
                                          std::size_t n_unbroken, bool excludes) {
  const FloatEnvironment contract;
  Entries row;
  for (const float logit : logits) row.push_back({static_cast<TokenId>(row.size()), logit});
  // 1. Repeat penalty.
  std::set<TokenId> recent;
  for (std::size_t i = 0; i < past.size(); ++i) {
    const auto age = static_cast<std::int64_t>(past.size() - i);
    if (options.repeat_last_n < 0 || age <= options.repeat_last_n) recent.insert(past[i]);
  }
  for (const TokenId id : recent) {
    if (options.repeat_penalty == 1) break;
    float& logit = row[static_cast<std::size_t>(id)].logit;
    if (logit > 0) {
      logit /= options.repeat_penalty;
    } else {
      logit *= options.repeat_penalty;
    }
  }
  // Presence and frequency penalty.
  std::map<TokenId, int> counts;
  for (std::size_t i = 0; i < past.size(); ++i) {
    if (past.size() - i <= n_generated) ++counts[past[i]];
  }
  for (const auto& [id, count] : counts) {
    if (options.presence_penalty == 0 && options.frequency_penalty == 0) break;
    const float product = static_cast<float>(count) * options.frequency_penalty;
    const float lost = product + options.presence_penalty;
    row[static_cast<std::size_t>(id)].logit -= lost;
  }
  if (options.dry_multiplier > 0) penalize_repetitions(row, past, n_unbroken, options);
  const bool greedy = options.temperature == 0;
  const std::size_t near =
      options.top_n_sigma > 0 ? count_by_sigma(row, options.top_n_sigma) : row.size();
  // 2., 3. Temperature, here or after the filters.
  if (!greedy && options.order == SamplerOrder::kHf)
    divide_distances(row, temperature_of(options, row));
  // Descending; a stable sort leaves the lower id first among equals.
  std::ranges::stable_sort(row, [](const Entry& a, const Entry& b) { return a.logit > b.logit; });
  if (greedy) row.resize(1);
  // 4. Top-k.
  if (options.top_k > 0 && options.top_k < row.size()) row.resize(options.top_k);
  if (near < row.size()) row.resize(near);
  // Typical-p.
  if (!greedy && options.typical_p < 1) row = kept_by_typical_p(row, options.typical_p);
  // 5. Top-p.
  if (options.top_p < 1) row.resize(kept_by_top_p(row, options.top_p));
  // 6. Min-p.
  if (options.min_p > 0) row.resize(kept_by_min_p(row, options.min_p));
  // XTC.
  if (!greedy && excludes) exclude_top_choices(row, options.xtc_threshold);
  if (!greedy && options.order == SamplerOrder::kLlamaCpp)
    divide_distances(row, temperature_of(options, row));
  // 7. Softmax.
  const std::vector<float> w = weights(row);
  const float total = sum_of(w);
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < row.size(); ++i) candidates.push_back({row[i].id, w[i] / total});
  return candidates;
}

}  // namespace llm
