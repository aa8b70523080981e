#include "tests/engine/naive_sampler.h"

#include "base/float_environment.h"
#include "quant/contract/arithmetic.h"
#include "tests/support/test.h"

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

}  // namespace

std::vector<Candidate> naive_distribution(const SamplerOptions& options,
                                          std::span<const float> logits,
                                          std::span<const TokenId> past, std::size_t n_generated) {
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
  const bool greedy = options.temperature == 0;
  // 2., 3. Temperature, here or after the filters.
  if (!greedy && options.order == SamplerOrder::kHf) divide_distances(row, options.temperature);
  // Descending; a stable sort leaves the lower id first among equals.
  std::ranges::stable_sort(row, [](const Entry& a, const Entry& b) { return a.logit > b.logit; });
  if (greedy) row.resize(1);
  // 4. Top-k.
  if (options.top_k > 0 && options.top_k < row.size()) row.resize(options.top_k);
  // 5. Top-p.
  if (options.top_p < 1) row.resize(kept_by_top_p(row, options.top_p));
  // 6. Min-p.
  if (options.min_p > 0) row.resize(kept_by_min_p(row, options.min_p));
  if (!greedy && options.order == SamplerOrder::kLlamaCpp)
    divide_distances(row, options.temperature);
  // 7. Softmax.
  const std::vector<float> w = weights(row);
  const float total = sum_of(w);
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < row.size(); ++i) candidates.push_back({row[i].id, w[i] / total});
  return candidates;
}

}  // namespace llm
