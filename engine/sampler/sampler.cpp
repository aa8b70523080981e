#include "engine/sampler/sampler.h"

#include <Random123/philox.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/float_environment.h"
#include "base/log_sum_exp.h"
#include "quant/contract/arithmetic.h"

namespace llm {
namespace {

/// A token and its logit; filters work on vectors of them, sorted by before().
struct Scored {
  TokenId id;
  float logit;
};

bool before(const Scored& a, const Scored& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

Status check_logits(std::span<const float> logits, std::uint64_t position) {
  const auto refuse = [position](std::string found) {
    return Error{
        .code = ErrorCode::kNonFinite,
        .field = "logits",
        .message = fmt::format("position {}: found {}, need finite numbers; no token drawn",
                               position, found)};
  };
  float largest = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return refuse(fmt::format("NaN for token {}", i));
    largest = std::max(largest, logits[i]);
  }
  if (std::isinf(largest)) return refuse(largest > 0 ? "+Inf" : "-Inf for every token");
  return Ok{};
}

/// Keskar et al., "CTRL", arXiv:1909.05858, eq. 1, with the sign rule that all engines share: a
/// negative logit is multiplied, so that the penalty lowers it too. Each token counts once.
void penalize(std::span<Scored> row, std::span<const TokenId> past, const SamplerOptions& options) {
  if (options.repeat_penalty == 1.0F) return;
  const std::size_t wanted =
      options.repeat_last_n < 0 ? past.size() : static_cast<std::size_t>(options.repeat_last_n);
  const auto recent = past.last(std::min(wanted, past.size()));
  std::vector<TokenId> ids(recent.begin(), recent.end());
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const TokenId id : ids) {
    float& logit = row[static_cast<std::size_t>(id)].logit;
    logit = logit > 0 ? logit / options.repeat_penalty : logit * options.repeat_penalty;
  }
}

/// Distances to the largest logit are scaled, not logits: no temperature can make Inf - Inf of
/// them.
void apply_temperature(std::vector<Scored>& row, float temperature) {
  if (temperature == 1.0F) return;
  const float largest = std::ranges::min_element(row, before)->logit;
  for (Scored& token : row) token.logit = (token.logit - largest) / temperature;
}

/// Leaves the k most likely, sorted.
void keep_top_k(std::vector<Scored>& row, std::size_t k) {
  if (k == 0 || k >= row.size()) {
    std::ranges::sort(row, before);
    return;
  }
  const auto middle = row.begin() + static_cast<std::ptrdiff_t>(k);
  std::ranges::partial_sort(row, middle, before);
  row.erase(middle, row.end());
}

/// exp(logit - largest) of a sorted row: 1 for the first.
std::vector<float> weights_of(const std::vector<Scored>& row) {
  std::vector<float> weights(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) {
    weights[i] = contract::exp(row[i].logit - row[0].logit);
  }
  return weights;
}

float lane_sum(const std::vector<float>& values) {
  contract::LaneSum sum;
  for (std::size_t i = 0; i < values.size(); ++i) sum.add(i, values[i]);
  return sum.total();
}

/// Holtzman et al., arXiv:1904.09751: drops a token of the sorted row when the probability of those
/// before it has reached p. The first always stays.
void keep_top_p(std::vector<Scored>& row, float p) {
  if (p >= 1.0F) return;
  const std::vector<float> weights = weights_of(row);
  const float enough = p * lane_sum(weights);
  float mass = weights[0];
  std::size_t kept = 1;
  while (kept < row.size() && mass < enough) mass += weights[kept++];
  row.resize(kept);
}

/// Nguyen et al., arXiv:2407.01082: drops a token of the sorted row below p times the first.
void keep_min_p(std::vector<Scored>& row, float p) {
  if (p <= 0.0F) return;
  const std::vector<float> weights = weights_of(row);
  std::size_t kept = 1;
  while (kept < row.size() && weights[kept] >= p) ++kept;  // the first one's weight is exactly 1
  row.resize(kept);
}

std::vector<Scored> filtered(std::span<const float> logits, std::span<const TokenId> past,
                             const SamplerOptions& options) {
  std::vector<Scored> row(logits.size());
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = {static_cast<TokenId>(i), logits[i]};
  penalize(row, past, options);
  if (options.temperature == 0.0F) return {*std::ranges::min_element(row, before)};
  if (options.order == SamplerOrder::kHf) apply_temperature(row, options.temperature);
  keep_top_k(row, options.top_k);
  keep_top_p(row, options.top_p);
  keep_min_p(row, options.min_p);
  if (options.order == SamplerOrder::kLlamaCpp) apply_temperature(row, options.temperature);
  return row;
}

}  // namespace

double uniform_draw(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position) {
  using Philox = r123::Philox4x32;
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const Philox::ctr_type counter = {{low(position), high(position), low(sequence), high(sequence)}};
  const Philox::key_type key = {{low(seed), high(seed)}};
  const Philox::ctr_type bits = Philox()(counter, key);
  const std::uint64_t word = (std::uint64_t{bits[1]} << 32) | bits[0];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

Sampler::Sampler(const SamplerOptions& options, std::uint64_t sequence)
    : options_(options), sequence_(sequence) {
  LLM_CHECK(options.temperature >= 0.0F && options.repeat_penalty > 0.0F);
  LLM_CHECK(options.top_p >= 0.0F && options.top_p <= 1.0F);
  LLM_CHECK(options.min_p >= 0.0F && options.min_p <= 1.0F);
}

Result<std::vector<Candidate>> Sampler::distribution(std::span<const float> logits,
                                                     std::span<const TokenId> past,
                                                     std::uint64_t position) const {
  LLM_CHECK(!logits.empty());
  const FloatEnvironment contract;
  LLM_RETURN_IF_ERROR(check_logits(logits, position));
  const std::vector<Scored> row = filtered(logits, past, options_);
  const std::vector<float> weights = weights_of(row);
  const float total = lane_sum(weights);
  std::vector<Candidate> candidates(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) candidates[i] = {row[i].id, weights[i] / total};
  return candidates;
}

Result<TokenId> Sampler::sample(std::span<const float> logits, std::span<const TokenId> past,
                                std::uint64_t position) const {
  const FloatEnvironment contract;
  LLM_TRY(const std::vector<Candidate> candidates, distribution(logits, past, position));
  const double draw = uniform_draw(options_.seed, sequence_, position);
  double mass = 0;
  for (const Candidate& candidate : candidates) {
    mass += static_cast<double>(candidate.probability);
    if (draw < mass) return candidate.id;
  }
  // Rounded probabilities may add up to a little less than the draw.
  return candidates.front().id;
}

Logprobs logprobs_of(std::span<const float> logits, TokenId chosen, std::size_t n_top) {
  const FloatEnvironment contract;
  std::vector<Scored> row(logits.size());
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = {static_cast<TokenId>(i), logits[i]};
  const double norm = log_sum_exp(logits);
  const auto logprob = [&](const Scored& token) {
    return TokenLogprob{token.id, static_cast<double>(token.logit) - norm};
  };
  Logprobs result{logprob(row[static_cast<std::size_t>(chosen)]), {}};
  const auto middle = row.begin() + static_cast<std::ptrdiff_t>(std::min(n_top, row.size()));
  std::ranges::partial_sort(row, middle, before);
  for (auto token = row.begin(); token != middle; ++token) result.top.push_back(logprob(*token));
  return result;
}

}  // namespace llm
