#include "validate/text/quality/signals.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "validate/reference/diff/likelihood.h"

namespace llm {
namespace {

constexpr std::size_t kRepetitionWindow = 20;

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

}  // namespace llm
