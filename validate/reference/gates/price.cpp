#include "validate/reference/gates/price.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "validate/reference/diff/likelihood.h"

namespace llm {
namespace {

/// A cost beyond so many times the expected one is worth a word.
constexpr double kUnusual = 10;

}  // namespace

Result<std::vector<std::string>> logits_notes(const Dump& run, const Dump& reference,
                                              const LayerDiffRow& row) {
  std::vector<std::string> notes;
  if (row.verdict != TapVerdict::kShown) return notes;
  LLM_TRY(const TapMatrix actual, run.tap(ProbeSink::kGlobal, "logits"));
  LLM_TRY(const TapMatrix expected, reference.tap(ProbeSink::kGlobal, "logits"));
  DivergenceCollector collector;
  const std::size_t n = expected.features;
  for (std::size_t t = 0; t < expected.rows; ++t) {
    collector.add(std::span(actual.values).subspan(t * n, n),
                  std::span(expected.values).subspan(t * n, n), -1);
  }
  const Divergence d = collector.finish();
  const double usual = row.limits.empty() ? 0 : row.limits.front().bound;
  notes.push_back(fmt::format(
      "logits NMSE {:.1e}, expected {:.1e}; KL {:.1e}; same top token in {:.1f} % of {}",
      row.error.nmse, usual, d.kl_mean, 100 * d.top1_agreement, d.positions));
  if (usual > 0 && !(row.error.nmse <= kUnusual * usual))
    notes.push_back(fmt::format("unusual: {:.0f} x the expected cost", row.error.nmse / usual));
  return notes;
}

std::string noise_note(const Replay& replay, const OpNoise& errors, const OpNoise& predicted) {
  double least = 0;
  double most = 0;
  for (const auto& [key, noise] : predicted) {
    const auto format = replay.product_format(key.first, key.second);
    const auto error = errors.find(key);
    if (!format || *format == ActivationFormat::kF32 || error == errors.end()) continue;
    const double z = std::sqrt(error->second / noise);
    least = most == 0 ? z : std::min(least, z);
    most = std::max(most, z);
  }
  if (most == 0) return {};
  return fmt::format("products: error {:.2f} to {:.2f} times the noise predicted (rms z)", least,
                     most);
}

}  // namespace llm
