#include "validate/text/verify/topk_gate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace llm {
namespace {

constexpr double kNoiseShare = 0.999;

ChoiceMismatch mismatch_at(std::size_t step, const TopStep& reference, const TopStep& engine) {
  return {.step = step,
          .reference = reference.choice(),
          .engine = engine.choice(),
          .reference_rank = rank_in(engine, reference.choice()),
          .engine_rank = rank_in(reference, engine.choice()),
          .gap = preference_gap(reference, engine.choice())};
}

}  // namespace

TopStep top_step(std::span<const float> logits, std::size_t k) {
  LLM_CHECK(k >= 1 && k <= logits.size());
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), TokenId{0});
  const auto logit = [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; };
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
      [&](TokenId a, TokenId b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  order.resize(k);
  TopStep step{.ids = order, .logits = {}};
  for (const TokenId id : order) step.logits.push_back(logit(id));
  return step;
}

std::optional<std::size_t> rank_in(const TopStep& step, TokenId id) {
  const auto found = std::ranges::find(step.ids, id);
  if (found == step.ids.end()) return std::nullopt;
  return static_cast<std::size_t>(found - step.ids.begin()) + 1;
}

double preference_gap(const TopStep& reference, TokenId other) {
  const std::size_t last = reference.logits.size();
  const std::size_t rank = rank_in(reference, other).value_or(last);
  return static_cast<double>(reference.logits.front()) -
         static_cast<double>(reference.logits[rank - 1]);
}

Lockstep compare_lockstep(std::span<const TopStep> reference, std::span<const TopStep> engine) {
  Lockstep result;
  for (std::size_t t = 0; t < reference.size(); ++t) {
    LLM_CHECK(t < engine.size());
    if (engine[t].choice() != reference[t].choice()) {
      result.mismatch = mismatch_at(t, reference[t], engine[t]);
      break;
    }
    ++result.agreed;
  }
  return result;
}

std::size_t Forced::misses(double noise) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      mismatches, [&](const ChoiceMismatch& m) { return !(m.gap <= 2 * noise); }));
}

std::size_t Forced::outside() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(mismatches, [](const ChoiceMismatch& m) { return !m.included(); }));
}

Forced compare_forced(std::span<const TopStep> reference, std::span<const TopStep> engine) {
  LLM_CHECK(reference.size() == engine.size());
  Forced result{.steps = reference.size(), .mismatches = {}};
  for (std::size_t t = 0; t < reference.size(); ++t) {
    if (engine[t].choice() == reference[t].choice()) continue;
    result.mismatches.push_back(mismatch_at(t, reference[t], engine[t]));
  }
  return result;
}

void LogitNoise::add(std::span<const float> actual, std::span<const float> expected) {
  LLM_CHECK(actual.size() == expected.size());
  sizes_.reserve(sizes_.size() + actual.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto e = static_cast<double>(expected[i]);
    const double d = static_cast<double>(actual[i]) - e;
    sizes_.push_back(static_cast<float>(std::abs(d)));
    error_ += d * d;
    signal_ += e * e;
  }
}

double LogitNoise::p999() const {
  if (sizes_.empty()) return 0;
  const auto n = static_cast<double>(sizes_.size());
  const auto rank = static_cast<std::ptrdiff_t>(std::ceil(kNoiseShare * n));
  std::vector<float> sizes = sizes_;
  const auto place = sizes.begin() + rank - 1;
  std::nth_element(sizes.begin(), place, sizes.end());
  return static_cast<double>(*place);
}

double LogitNoise::max() const {
  return sizes_.empty() ? 0 : static_cast<double>(std::ranges::max(sizes_));
}

double LogitNoise::nmse() const { return sizes_.empty() ? 0 : error_ / signal_; }

}  // namespace llm
