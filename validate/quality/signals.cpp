#include "validate/quality/signals.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/sampler/sampler.h"
#include "validate/diff/likelihood.h"
#include "validate/diff/metrics.h"

namespace llm {
namespace {

constexpr std::size_t kRepetitionWindow = 20;
constexpr std::size_t kResamples = 2000;

double repeated_share(std::span<const TokenId> tokens) {
  const std::set<TokenId> unique(tokens.begin(), tokens.end());
  return 1 - static_cast<double>(unique.size()) / static_cast<double>(tokens.size());
}

}  // namespace

double perplexity(std::span<const double> nll) { return std::exp(estimate_mean(nll).mean); }

double repetition(std::span<const TokenId> tokens) {
  if (tokens.empty()) return 0;
  const std::size_t width = std::min(kRepetitionWindow, tokens.size());
  const std::size_t n_windows = tokens.size() - width + 1;
  double sum = 0;
  for (std::size_t i = 0; i < n_windows; ++i) sum += repeated_share(tokens.subspan(i, width));
  return sum / static_cast<double>(n_windows);
}

double distinct(std::span<const TokenId> tokens, std::size_t n) {
  if (tokens.size() < n) return 1;
  std::set<std::vector<TokenId>> unique;
  const std::size_t total = tokens.size() - n + 1;
  for (std::size_t i = 0; i < total; ++i) {
    const auto gram = tokens.subspan(i, n);
    unique.emplace(gram.begin(), gram.end());
  }
  return static_cast<double>(unique.size()) / static_cast<double>(total);
}

double consistency(std::span<const std::vector<TokenId>> runs) {
  if (runs.empty()) return 1;
  const auto equal = std::ranges::count(runs, runs.front());
  return static_cast<double>(equal) / static_cast<double>(runs.size());
}

PairedGate paired_gate(std::span<const double> differences, double limit, std::uint64_t seed) {
  PairedGate gate;
  gate.mean = estimate_mean(differences).mean;
  const bool all_equal =
      !differences.empty() && std::ranges::all_of(differences, [](double d) { return d == 0; });
  const std::size_t n_blocks = differences.size() / kScoreBlock;
  if (all_equal) gate.verdict = limit >= 0 ? GateVerdict::kPass : GateVerdict::kFail;
  if (all_equal || n_blocks < 2 || !std::isfinite(gate.mean)) return gate;
  std::vector<double> blocks;
  for (std::size_t b = 0; b < n_blocks; ++b)
    blocks.push_back(estimate_mean(differences.subspan(b * kScoreBlock, kScoreBlock)).mean);
  std::vector<double> means;
  for (std::size_t r = 0; r < kResamples; ++r) {
    double sum = 0;
    for (std::size_t i = 0; i < n_blocks; ++i) {
      const double u = uniform_draw(seed, r, i);
      sum += blocks[static_cast<std::size_t>(u * static_cast<double>(n_blocks))];
    }
    means.push_back(sum / static_cast<double>(n_blocks));
  }
  std::ranges::sort(means);
  gate.lower = nearest_rank(means, 0.025);
  gate.upper = nearest_rank(means, 0.975);
  if (gate.upper <= limit) gate.verdict = GateVerdict::kPass;
  if (gate.lower > limit) gate.verdict = GateVerdict::kFail;
  return gate;
}

}  // namespace llm
