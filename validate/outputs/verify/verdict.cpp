#include "validate/outputs/verify/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

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

constexpr std::size_t kOutsideShare = 100;  // one in so many, rounded up
constexpr std::size_t kOutsideMost = 20;    // of few steps, no more than one in so many
constexpr std::size_t kNamedPrompts = 3;

template <typename Count>
std::size_t sum(const std::vector<PromptOutcome>& prompts, Count count) {
  return std::transform_reduce(prompts.begin(), prompts.end(), std::size_t{0}, std::plus<>(),
                               count);
}

/// A choice outside the top is no verdict by itself where another quantization may have some.
const char* prompt_verdict(const VerifyOutcome& outcome, const PromptOutcome& prompt) {
  if (outcome.gate == VerifyGate::kQuantized)
    return prompt.forced.outside() > 0 ? "OUTSIDE" : "PASS";
  return prompt.lockstep.passed() && prompt.forced.misses(outcome.noise.p999()) == 0 ? "PASS"
                                                                                     : "FAIL";
}

/// ": base-1, base-4, ..." for the prompts that `failed` says; empty for none.
template <typename Failed>
std::string named(const VerifyOutcome& outcome, Failed failed) {
  std::vector<std::string> names;
  for (const PromptOutcome& prompt : outcome.prompts)
    if (failed(prompt)) names.push_back(prompt.id);
  if (names.empty()) return "";
  const bool more = names.size() > kNamedPrompts;
  names.resize(std::min(names.size(), kNamedPrompts));
  return fmt::format(": {}{}", fmt::join(names, ", "), more ? ", ..." : "");
}

CheckResult texts_check(const VerifyOutcome& o) {
  return {"verify: prompts give the reference's ids", o.text_problems.empty(),
          o.text_problems.empty() ? fmt::format("{} texts", o.texts)
                                  : fmt::format("{}", fmt::join(o.text_problems, "; "))};
}

CheckResult error_check(std::string name, const LogitNoise& error, double limit) {
  return {std::move(name), error.nmse() <= limit,
          fmt::format("NMSE {:.2e}, limit {:.1e}; largest difference {:.2e}", error.nmse(), limit,
                      error.max())};
}

CheckResult lockstep_check(const VerifyOutcome& o) {
  const auto whole =
      std::ranges::count_if(o.prompts, [](const PromptOutcome& p) { return !p.lockstep.mismatch; });
  const auto failed = [](const PromptOutcome& p) { return !p.lockstep.passed(); };
  const auto n_failed = std::ranges::count_if(o.prompts, failed);
  return {fmt::format("verify: greedy, first difference in both top {}", o.top_k), n_failed == 0,
          fmt::format("{} of {} prompts equal to the end, {} differ outside{}", whole,
                      o.prompts.size(), n_failed, named(o, failed))};
}

CheckResult forced_check(const VerifyOutcome& o) {
  const double noise = o.noise.p999();
  const std::size_t misses = o.misses();
  return {"verify: given the reference's tokens, its choices", misses == 0,
          fmt::format("{} of {} equal, {} near ties (gap <= 2 x {:.4f}), {} misses{}", o.equal(),
                      o.steps(), o.steps() - o.equal() - misses, noise, misses,
                      named(o, [&](const auto& p) { return p.forced.misses(noise) > 0; }))};
}

CheckResult outside_check(const VerifyOutcome& o) {
  return {fmt::format("verify: given the reference's tokens, choices in both top {}", o.top_k),
          o.outside() <= o.outside_allowed(),
          fmt::format("{} of {} equal, {} outside, {} allowed for another quantization{}",
                      o.equal(), o.steps(), o.outside(), o.outside_allowed(),
                      named(o, [](const auto& p) { return p.forced.outside() > 0; }))};
}

Figure rank(const std::optional<std::size_t>& rank, std::size_t top_k) {
  if (rank) return Figure::count(*rank);
  return {fmt::format(">{}", top_k)};
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

std::size_t VerifyOutcome::steps() const {
  return sum(prompts, [](const PromptOutcome& p) { return p.forced.steps; });
}

std::size_t VerifyOutcome::equal() const {
  return steps() - sum(prompts, [](const PromptOutcome& p) { return p.forced.mismatches.size(); });
}

std::size_t VerifyOutcome::misses() const {
  const double bound = noise.p999();
  return sum(prompts, [&](const PromptOutcome& p) { return p.forced.misses(bound); });
}

std::size_t VerifyOutcome::outside() const {
  return sum(prompts, [](const PromptOutcome& p) { return p.forced.outside(); });
}

std::size_t VerifyOutcome::outside_allowed() const {
  return std::min((steps() + kOutsideShare - 1) / kOutsideShare, steps() / kOutsideMost);
}

std::vector<CheckResult> verify_checks(const VerifyOutcome& o) {
  std::vector<CheckResult> checks;
  if (o.texts > 0) checks.push_back(texts_check(o));
  if (o.gate == VerifyGate::kStrict)
    checks.push_back(
        error_check("verify: f32 logits equal the reference's", o.f32_error, o.f32_limit));
  checks.push_back(error_check("verify: the error of int8 activations is within its limit", o.noise,
                               o.noise_limit));
  if (o.gate == VerifyGate::kStrict) {
    checks.push_back(lockstep_check(o));
    checks.push_back(forced_check(o));
  } else {
    checks.push_back(outside_check(o));
  }
  return checks;
}

FigureTable verify_table(const VerifyOutcome& o, std::string title,
                         const std::function<std::string(TokenId)>& spelling) {
  const bool strict = o.gate == VerifyGate::kStrict;
  FigureTable table{
      .title = std::move(title),
      .name = "verify",
      .columns = {"prompt", "agreed", "diverges", "reference", "rank here", "engine", "rank there",
                  "gap", strict ? "near ties" : "inside", strict ? "misses" : "outside", "verdict"},
      .rows = {}};
  const double noise = o.noise.p999();
  for (const PromptOutcome& prompt : o.prompts) {
    std::vector<Figure> row = {{prompt.id}, Figure::count(prompt.lockstep.agreed)};
    if (const auto& m = prompt.lockstep.mismatch) {
      row.push_back(Figure::count(m->step + 1));
      row.push_back({spelling(m->reference)});
      row.push_back(rank(m->reference_rank, o.top_k));
      row.push_back({spelling(m->engine)});
      row.push_back(rank(m->engine_rank, o.top_k));
      row.push_back(m->engine_rank ? Figure::fixed(m->gap, 4)
                                   : Figure{fmt::format(">={:.4f}", m->gap), m->gap});
    } else {
      row.insert(row.end(), 6, Figure{"-"});
    }
    const std::size_t bad = strict ? prompt.forced.misses(noise) : prompt.forced.outside();
    row.push_back(Figure::count(prompt.forced.mismatches.size() - bad));
    row.push_back(Figure::count(bad));
    row.push_back({prompt_verdict(o, prompt)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

FigureTable verify_errors_table(const VerifyOutcome& o) {
  FigureTable table{.title = "Errors of the logits, given the reference's tokens",
                    .name = "verify-errors",
                    .columns = {"error", "logits", "NMSE", "p99.9", "largest", "limit"},
                    .rows = {}};
  const auto add = [&](std::string name, const LogitNoise& error, double limit) {
    table.rows.push_back({{std::move(name)},
                          Figure::count(error.count()),
                          Figure::number(error.nmse(), 3),
                          Figure::number(error.p999(), 3),
                          Figure::number(error.max(), 3),
                          limit > 0 ? Figure::number(limit, 2) : Figure{"-"}});
  };
  const bool strict = o.gate == VerifyGate::kStrict;
  add(strict ? "f32 - reference (implementation)" : "f32 - reference (other weights)", o.f32_error,
      strict ? o.f32_limit : 0);
  add("int8 - f32 (activations)", o.noise, o.noise_limit);
  add("int8 - reference", o.int8_error, 0);
  return table;
}

}  // namespace llm
