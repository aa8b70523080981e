#include "validate/outputs/quality/document_gate.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "engine/sampler/sampler.h"
#include "validate/outputs/quality/text_windows.h"
#include "validate/reference/diff/likelihood.h"

namespace llm {
namespace {

constexpr std::size_t kFirstLook = 32;
constexpr double kWrongAnswers = 0.025;

struct Interval {
  double lower;
  double upper;
};

/// Bounds on the mean that `values` are draws of, each wrong with probability `tail`: Student's,
/// moved outwards where draws are skewed (N. J. Johnson, Modified t tests, 1978), since few draws
/// of a skewed quantity seldom show its long end.
Interval mean_interval(std::span<const double> values, double tail) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  double cubes = 0;
  for (const double v : values) {
    squares += (v - mean) * (v - mean);
    cubes += (v - mean) * (v - mean) * (v - mean);
  }
  const double variance = squares / (n - 1);
  const double t = quantile(complement(boost::math::students_t(n - 1), tail));
  const double width = t * std::sqrt(variance / n);
  const double shift = variance > 0 ? cubes / n / variance * (1 + 2 * t * t) / (6 * n) : 0;
  return {mean - width + std::min(shift, 0.0), mean + width + std::max(shift, 0.0)};
}

/// Indices of the documents, shuffled (Fisher and Yates).
std::vector<std::size_t> scoring_order(std::size_t n, std::uint64_t seed) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = n; i > 1; --i) {
    const double u = uniform_draw(seed, 0, i);
    std::swap(order[i - 1], order[static_cast<std::size_t>(u * static_cast<double>(i))]);
  }
  return order;
}

}  // namespace

std::vector<std::size_t> gate_looks(std::size_t n_documents) {
  std::vector<std::size_t> looks;
  for (std::size_t look = kFirstLook; look < n_documents; look *= 2) looks.push_back(look);
  looks.push_back(n_documents);
  return looks;
}

DocumentGate document_gate(std::span<const DocumentScore> scores,
                           std::span<const DocumentScore> baseline, double limit) {
  const auto looks = gate_looks(baseline.size());
  LLM_CHECK(std::ranges::find(looks, scores.size()) != looks.end());
  std::vector<double> excess;  // a document's loss beyond what its tokens are allowed
  double loss = 0;
  double tokens = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto length = static_cast<double>(scores[i].tokens);
    const double difference = scores[i].nll - baseline[i].nll;
    if (scores[i].tokens != baseline[i].tokens || !std::isfinite(difference))
      return {.verdict = Verdict::kFail, .mean = std::nan(""), .documents = scores.size()};
    excess.push_back(difference - limit * length);
    loss += difference;
    tokens += length;
  }
  const auto n = static_cast<double>(scores.size());
  DocumentGate gate{.mean = loss / tokens, .documents = scores.size()};
  const bool equal = std::ranges::equal(scores, baseline.first(scores.size()));
  gate.lower = gate.upper = gate.mean;
  if (equal) gate.verdict = Verdict::kPass;
  if (equal || scores.size() < 2) return gate;

  const Interval interval =
      mean_interval(excess, kWrongAnswers / static_cast<double>(looks.size()));
  gate.lower = limit + interval.lower * n / tokens;
  gate.upper = limit + interval.upper * n / tokens;
  if (gate.upper <= limit) gate.verdict = Verdict::kPass;
  if (gate.lower > limit) gate.verdict = Verdict::kFail;
  return gate;
}

Result<std::vector<DocumentScore>> score_documents(
    const std::shared_ptr<const Model>& model, std::string_view text, std::uint64_t seed,
    const std::function<bool(std::span<const DocumentScore>)>& enough, const Progress& progress) {
  const auto documents = split_documents(text);
  if (documents.empty()) return Error{ErrorCode::kUsage, "text", "found no document"};
  const WindowOptions window{.window = model->config().context, .documents = true};
  LLM_TRY(const auto sequence,
          open_sequence(model, {.context = window.window, .kv = usual_kv(model->compute())}));
  const auto order = scoring_order(documents.size(), seed);
  std::vector<DocumentScore> scores;
  for (const std::size_t look : gate_looks(documents.size())) {
    while (scores.size() < look) {
      LLM_TRY(const auto windows,
              text_windows(model->tokenizer(), documents[order[scores.size()]], window));
      DocumentScore score;
      LLM_RETURN_IF_ERROR(
          visit_rows(*sequence, windows, [&](std::span<const float> logits, TokenId target) {
            score.nll += negative_log_likelihood(logits, target);
            ++score.tokens;
          }));
      scores.push_back(score);
      if (progress) progress("scoring documents", scores.size(), look);
    }
    if (enough(scores)) break;
  }
  return scores;
}

}  // namespace llm
