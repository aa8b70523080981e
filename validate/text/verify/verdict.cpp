#include "validate/text/verify/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace llm {
namespace {

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
  return {"verify: fed its tokens, the reference's choices", misses == 0,
          fmt::format("{} of {} equal, {} near ties (gap <= 2 x {:.4f}), {} misses{}", o.equal(),
                      o.steps(), o.steps() - o.equal() - misses, noise, misses,
                      named(o, [&](const auto& p) { return p.forced.misses(noise) > 0; }))};
}

CheckResult outside_check(const VerifyOutcome& o) {
  return {fmt::format("verify: fed its tokens, choices in both top {}", o.top_k),
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
  checks.push_back(
      error_check("verify: int8 activations cost what they may", o.noise, o.noise_limit));
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
  FigureTable table{.title = "Errors of the logits, fed the reference's tokens",
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
