#include "engine/sampler/sampler.h"

#include <Random123/philox.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "base/float_environment.h"
#include "base/log_sum_exp.h"
#include "base/per_thread.h"
#include "engine/sampler/filtered_row.h"

namespace llm {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// The largest logit. Errors: those of Sampler::sample.
Result<float> largest_of(std::span<const float> logits, std::uint64_t position) {
  const auto refuse = [position](std::string found) {
    return Error{
        .code = ErrorCode::kNonFinite,
        .field = "logits",
        .message = fmt::format("position {}: found {}, need finite numbers; no token was sampled",
                               position, found)};
  };
  constexpr std::size_t kLanes = 32;
  std::array<float, kLanes> lanes;
  lanes.fill(-kInf);
  std::array<int, kLanes> is_nan{};
  const auto take = [&](std::size_t i, std::size_t l) {
    const float x = logits[i + l];
    lanes[l] = lanes[l] < x ? x : lanes[l];
    is_nan[l] |= x != x ? 1 : 0;
  };
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) take(i, l);
  }
  for (std::size_t l = 0; i + l < logits.size(); ++l) take(i, l);
  if (std::ranges::max(is_nan) > 0) {
    const auto at = std::ranges::find_if(logits, [](float x) { return std::isnan(x); });
    return refuse(fmt::format("NaN for token {}", at - logits.begin()));
  }
  const float largest = std::ranges::max(lanes);
  if (std::isinf(largest)) return refuse(largest > 0 ? "+Inf" : "-Inf for every token");
  return largest;
}

/// Keskar et al., "CTRL", arXiv:1909.05858, eq. 1, with the sign rule that all engines share: a
/// negative logit is multiplied, so that the penalty lowers it too. Each token counts once.
void penalize(std::span<float> row, std::span<const TokenId> past, const SamplerOptions& options) {
  const std::size_t wanted =
      options.repeat_last_n < 0 ? past.size() : static_cast<std::size_t>(options.repeat_last_n);
  const auto recent = past.last(std::min(wanted, past.size()));
  std::vector<TokenId> ids(recent.begin(), recent.end());
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const TokenId id : ids) {
    float& logit = row[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / options.repeat_penalty : logit * options.repeat_penalty;
  }
}

/// OpenAI's definition, of the text's own tokens: each loses count * frequency + presence.
void penalize_generated(std::span<float> row, std::span<const TokenId> generated,
                        const SamplerOptions& options) {
  std::vector<TokenId> ids(generated.begin(), generated.end());
  std::ranges::sort(ids);
  for (auto at = ids.begin(); at != ids.end();) {
    const auto next = std::upper_bound(at, ids.end(), *at);
    const float product = static_cast<float>(next - at) * options.frequency_penalty;
    row[static_cast<std::size_t>(*at)] -= product + options.presence_penalty;
    at = next;
  }
}

/// For each token that would go on a repetition of the last tokens, how long that is: of tokens
/// seen from the last one backwards, r, it is that of r and r[k..], for r[k - 1]. By the Z
/// algorithm (Gusfield 1997, 1.4), in time linear in the past.
std::map<TokenId, std::size_t> repetitions(std::span<const TokenId> recent) {
  const std::size_t n = recent.size();
  const auto r = [&](std::size_t i) { return recent[n - 1 - i]; };
  std::map<TokenId, std::size_t> longest;
  std::vector<std::size_t> lengths(n, 0);
  std::size_t begin = 0;  // of the match that goes furthest
  std::size_t end = 0;
  for (std::size_t k = 1; k < n; ++k) {
    std::size_t length = k < end ? std::min(lengths[k - begin], end - k) : 0;
    while (k + length < n && r(length) == r(k + length)) ++length;
    lengths[k] = length;
    if (k + length > end) {
      begin = k;
      end = k + length;
    }
    std::size_t& known = longest[r(k - 1)];
    known = std::max(known, length);
  }
  return longest;
}

/// DRY, "don't repeat yourself": Weidmann 2024, oobabooga/text-generation-webui, request 5677.
void penalize_repetitions(std::span<float> row, std::span<const TokenId> past,
                          std::size_t n_unbroken, const SamplerOptions& options) {
  constexpr float kMost = 1e30F;
  const std::size_t wanted = options.dry_penalty_last_n < 0
                                 ? past.size()
                                 : static_cast<std::size_t>(options.dry_penalty_last_n);
  const auto recent = past.last(std::min(wanted, past.size()));
  const std::size_t allowed = options.dry_allowed_length;
  if (recent.size() <= allowed || n_unbroken < allowed) return;
  for (const auto& [id, length] : repetitions(recent)) {
    const std::size_t counted = std::min(length, n_unbroken);
    if (counted < allowed) continue;
    float lost = options.dry_multiplier;
    for (std::size_t i = allowed; i < counted && lost < kMost; ++i) lost *= options.dry_base;
    row[static_cast<std::size_t>(id)] -= lost;
  }
}

DrawMemory& memory_of_thread() {
  static const PerThread<DrawMemory> memory;
  return memory.mine();
}

/// A row after its checks and the penalties.
struct PenalizedRow {
  std::span<const float> logits;
  float largest;  ///< infinite where a penalty made it so
  std::vector<float> memory = {};

  TokenId first() const { return static_cast<TokenId>(index_of(logits, largest)); }
};

Result<PenalizedRow> penalized(std::span<const float> logits, std::span<const TokenId> past,
                               std::uint64_t position, std::size_t n_generated,
                               std::size_t n_unbroken, const SamplerOptions& options) {
  LLM_CHECK(!logits.empty());
  LLM_TRY(const float largest, largest_of(logits, position));
  const bool repeats = options.repeat_penalty != 1.0F;
  const bool counts = options.presence_penalty != 0.0F || options.frequency_penalty != 0.0F;
  const bool goes_on = options.dry_multiplier != 0.0F;
  if (!repeats && !counts && !goes_on) return PenalizedRow{logits, largest};
  PenalizedRow row{.logits = {}, .largest = 0, .memory = {logits.begin(), logits.end()}};
  if (repeats) penalize(row.memory, past, options);
  if (counts)
    penalize_generated(row.memory, past.last(std::min(n_generated, past.size())), options);
  if (goes_on) penalize_repetitions(row.memory, past, n_unbroken, options);
  row.logits = row.memory;
  row.largest = std::ranges::max(row.memory);
  return row;
}

FilteredRow filtered(const PenalizedRow& row, const SamplerOptions& options, std::uint64_t sequence,
                     std::uint64_t position) {
  const bool excludes = options.xtc_probability > 0.0F &&
                        uniform_draw(options.seed, sequence ^ kXtcSequence, position) <
                            static_cast<double>(options.xtc_probability);
  return {row.logits, row.largest, options, excludes, memory_of_thread()};
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

Sampler::Sampler(const SamplerOptions& options, std::uint64_t sequence, std::size_t n_generated,
                 std::size_t n_unbroken)
    : options_(options), sequence_(sequence), n_generated_(n_generated), n_unbroken_(n_unbroken) {
  LLM_CHECK(options.temperature >= 0.0F && options.repeat_penalty > 0.0F);
  LLM_CHECK(options.top_p >= 0.0F && options.top_p <= 1.0F);
  LLM_CHECK(options.min_p >= 0.0F && options.min_p <= 1.0F);
  LLM_CHECK(options.typical_p >= 0.0F && options.typical_p <= 1.0F);
  LLM_CHECK(options.dry_base >= 1.0F && options.dynatemp_exponent >= 0.0F);
}

Result<std::vector<Candidate>> Sampler::distribution(std::span<const float> logits,
                                                     std::span<const TokenId> past,
                                                     std::uint64_t position) const {
  const FloatEnvironment contract;
  LLM_TRY(const PenalizedRow row,
          penalized(logits, past, position, n_generated_, n_unbroken_, options_));
  if (options_.temperature == 0.0F || std::isinf(row.largest))
    return std::vector<Candidate>{{row.first(), 1.0F}};
  return filtered(row, options_, sequence_, position).candidates();
}

Result<TokenId> Sampler::sample(std::span<const float> logits, std::span<const TokenId> past,
                                std::uint64_t position) const {
  const FloatEnvironment contract;
  LLM_TRY(const PenalizedRow row,
          penalized(logits, past, position, n_generated_, n_unbroken_, options_));
  if (options_.temperature == 0.0F || std::isinf(row.largest)) return row.first();
  const double draw = uniform_draw(options_.seed, sequence_, position);
  return filtered(row, options_, sequence_, position).draw(draw);
}

Logprobs logprobs_of(std::span<const float> logits, TokenId chosen, std::size_t n_top) {
  const FloatEnvironment contract;
  const double norm = log_sum_exp(logits);
  const auto logprob = [norm](const Scored& token) {
    return TokenLogprob{token.id, static_cast<double>(token.logit) - norm};
  };
  Logprobs result{logprob({chosen, logits[static_cast<std::size_t>(chosen)]}), {}};
  for (const Scored& token : most_likely(logits, n_top)) result.top.push_back(logprob(token));
  return result;
}

}  // namespace llm
