#include "engine/generation/speculation_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace llm {
namespace {

/// What a row beyond the first costs, believed like so many measurements; and what it never costs
/// but by accident, since passes of their own are cheaper.
constexpr double kFirstSlope = 0.35;
constexpr int kFirstSlopes = 2;
constexpr double kMostSlope = 2;
/// Passes of a number of rows after which they are believed instead of the line, and passes of
/// other numbers after which they no longer are: the machine may have been busy.
constexpr std::size_t kEnoughPasses = 3;
constexpr std::size_t kRecentPasses = 64;
/// Of a token's proposal, until one was measured: a draft of a quarter of the model.
constexpr double kFirstProposalCost = 0.25;
/// What a proposal must promise: so many tokens in the time of one.
constexpr double kLeastGain = 1.05;
/// Passes that may be lost to wrong proposals: at first, at most, and earned by each token.
constexpr double kFirstAllowance = 1;
constexpr double kMostAllowance = 8;
constexpr double kEarned = 0.02;
/// Tokens that are tried though not worth it, and tokens of text between two tries: twice as many
/// after each in vain.
constexpr std::size_t kTried = 3;
constexpr std::size_t kFirstWait = 16;
constexpr std::size_t kMostWait = 128;
/// Tokens that an acceptance remembers.
constexpr double kMemory = 16;
/// How many values of its own place the acceptance of all places counts as.
constexpr double kShareOfAll = 4;
/// Single rows that are measured before anything is compared with them, and again where several
/// rows took less; and passes after which one is measured again in any case.
constexpr std::size_t kSingles = 4;
constexpr std::size_t kMostSinceSingle = 64;

}  // namespace

void RunningMedian::add(double value) {
  values_[next_] = value;
  next_ = (next_ + 1) % kValues;
  n_ = std::min(n_ + 1, kValues);
  auto sorted = values_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((n_ - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(n_));
  median_ = *middle;
}

PassCosts::PassCosts() {
  for (int i = 0; i < kFirstSlopes; ++i) slope_.add(kFirstSlope);
}

void PassCosts::note(std::size_t n_rows, double seconds) {
  LLM_CHECK(n_rows >= 1 && n_rows <= kMostRows);
  ++n_passes_;
  if (n_rows == 1) return single_.add(seconds);
  if (single_.value() <= 0) return;
  const auto more = static_cast<double>(n_rows - 1);
  const double slope = std::clamp((seconds / single_.value() - 1) / more, 0.0, kMostSlope);
  slope_.add(slope);
  of_rows_[n_rows].cost.add(1 + slope * more);
  of_rows_[n_rows].last_pass = n_passes_;
}

double PassCosts::of(std::size_t n_rows) const {
  LLM_CHECK(n_rows >= 1 && n_rows <= kMostRows);
  const auto& [cost, last_pass] = of_rows_[n_rows];
  if (cost.size() >= kEnoughPasses && n_passes_ - last_pass <= kRecentPasses) return cost.value();
  return 1 + slope_.value() * static_cast<double>(n_rows - 1);
}

SpeculationPolicy::SpeculationPolicy(std::optional<std::size_t> fixed)
    : fixed_(fixed), allowance_(kFirstAllowance), n_single_wanted_(kSingles), wait_(kFirstWait) {
  LLM_CHECK(!fixed || *fixed <= kMost);
}

void SpeculationPolicy::Share::add(bool right) {
  n = std::min(n + 1, kMemory);
  value += ((right ? 1 : 0) - value) / n;
}

void SpeculationPolicy::Acceptance::add(std::size_t place, bool right) {
  all.add(right);
  places[std::min(place, kPlaces - 1)].add(right);
}

/// Few values of a place say less than those of all.
double SpeculationPolicy::Acceptance::at(std::size_t place) const {
  const Share& here = places[std::min(place, kPlaces - 1)];
  const double n = here.n - 1;
  return (n * here.value + kShareOfAll * all.value) / (n + kShareOfAll);
}

double SpeculationPolicy::cost(std::size_t n_proposed) const {
  return costs_.of(n_proposed + 1) + static_cast<double>(n_proposed) * proposal_cost_.value();
}

/// With probability p of each token to be right behind right ones, k of them give 1 + p + ... + p^k
/// tokens in the time of a pass of k + 1 rows and of the proposal: the k with the most tokens a
/// second, if that is more than without, else 0.
std::size_t SpeculationPolicy::worth(std::size_t grade) const {
  const Acceptance& acceptance = acceptance_[std::min(grade, Proposer::kGrades - 1)];
  double best_rate = kLeastGain;
  std::size_t best = 0;
  double reached = 1;  // probability that all before are right
  double tokens = 1;
  for (std::size_t n = 1; n <= kMost && is_allowed(n); ++n) {
    reached *= acceptance.at(n - 1);
    tokens += reached;
    if (tokens <= best_rate * cost(n)) continue;
    best_rate = tokens / cost(n);
    best = n;
  }
  return best;
}

std::size_t SpeculationPolicy::length(std::size_t grade) const {
  if (fixed_) return *fixed_;
  if (n_single_wanted_ > 0) return 0;
  const std::size_t best = worth(grade);
  if (best > 0 || allowance_ < kFirstAllowance || since_proposal_ < wait_) return best;
  std::size_t few = kTried;
  while (few > 0 && !is_allowed(few)) --few;
  return few;
}

void SpeculationPolicy::learn_cost(const Outcome& outcome) {
  if (outcome.pass_seconds <= 0) return;
  costs_.note(outcome.proposed + 1, outcome.pass_seconds);
  if (outcome.proposed == 0) {
    n_single_wanted_ -= std::min<std::size_t>(n_single_wanted_, 1);
    since_single_ = 0;
    return;
  }
  if (++since_single_ == kMostSinceSingle) n_single_wanted_ = 1;
  if (outcome.pass_seconds < costs_.single_seconds()) n_single_wanted_ = kSingles;
  if (costs_.single_seconds() <= 0) return;
  const double each =
      outcome.proposal_seconds / (static_cast<double>(outcome.proposed) * costs_.single_seconds());
  const bool is_first = proposal_cost_.size() == 0;
  proposal_cost_.add(is_first ? std::min(each, 2 * kFirstProposalCost) : each);
}

void SpeculationPolicy::note(const Outcome& outcome) {
  LLM_CHECK(outcome.proposed <= kMost);
  // What it took, but for an accident at most twice of what was to be expected.
  const double single = costs_.single_seconds();
  const double took = outcome.pass_seconds + outcome.proposal_seconds;
  const double expected = cost(outcome.proposed);
  const double charge = single > 0 ? std::clamp(took / single, expected, 2 * expected) : expected;
  learn_cost(outcome);
  double gained = kEarned * static_cast<double>(1 + outcome.accepted);
  ++since_proposal_;
  if (outcome.proposed > 0) {
    Acceptance& acceptance = acceptance_[std::min(outcome.grade, Proposer::kGrades - 1)];
    for (std::size_t i = 0; i < outcome.accepted; ++i) acceptance.add(i, true);
    if (outcome.refuted) acceptance.add(outcome.accepted, false);
    gained += 1 + static_cast<double>(outcome.accepted) - charge;
  }
  allowance_ = std::min(allowance_ + gained, kMostAllowance);
  if (outcome.proposed == 0) return;
  const bool is_first = std::exchange(since_proposal_, 0) > 1;
  // What was right is tried soon again, unless even that is too dear. The second proposal in a row
  // comes at once: it costs less than the first, before which a proposer reads what it missed.
  const bool is_hopeful = !outcome.refuted && (1 + kTried) > kLeastGain * cost(kTried);
  if (is_first && !outcome.refuted)
    wait_ = 0;
  else if (is_hopeful || worth(outcome.grade) > 0)
    wait_ = kFirstWait;
  else
    wait_ = std::clamp(2 * wait_, kFirstWait, kMostWait);
}

std::string SpeculationPolicy::describe() const {
  if (costs_.single_seconds() <= 0) return "nothing measured";
  std::vector<std::string> shares;
  for (const Acceptance& acceptance : acceptance_) {
    shares.push_back(fmt::format("{:.2f}", acceptance.all.value));
  }
  return fmt::format(
      "a pass takes {:.2f} ms, each further row {:.3f} of that, each proposed token {:.3f}; right "
      "by grade {}; allowance {:.2f}",
      costs_.single_seconds() * 1e3, costs_.slope(), proposal_cost_.value(), fmt::join(shares, " "),
      allowance_);
}

}  // namespace llm
