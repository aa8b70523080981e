#include "tools/llmload/cost_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tools/common/stats.h"

namespace llm {
namespace {

using Features = CostModel::Features;
constexpr std::size_t kN = CostModel::kNames.size();
constexpr double kLeastSeconds = 1e-6;

Features features_of(const StepShape& shape) {
  const auto tokens = static_cast<double>(shape.n_tokens);
  return {1,
          shape.n_tokens > 1 ? 1.0 : 0.0,
          std::min(tokens, 16.0),
          std::max(tokens - 16.0, 0.0),
          static_cast<double>(shape.n_sequences),
          static_cast<double>(shape.n_attended),
          static_cast<double>(shape.n_read),
          static_cast<double>(shape.n_logits),
          shape.after_idle ? 1.0 : 0.0};
}

double dot(const Features& a, const Features& b) {
  double sum = 0;
  for (std::size_t i = 0; i < kN; ++i) sum += a[i] * b[i];
  return sum;
}

using Used = std::array<bool, kN>;

/// The least-squares solution of weights * (features / seconds) = weights over the features in use,
/// by the normal equations of columns scaled to length 1; the ridge (Hoerl, Kennard 1970) splits
/// what the samples cannot tell apart.
Features solve(std::span<const StepSample> samples, std::span<const double> weights,
               const Used& used) {
  constexpr double kRidge = 1e-9;
  std::array<std::array<double, kN + 1>, kN> a = {};
  for (std::size_t s = 0; s < samples.size(); ++s) {
    Features x = features_of(samples[s].shape);
    for (std::size_t i = 0; i < kN; ++i) x[i] = used[i] ? x[i] / samples[s].seconds : 0;
    for (std::size_t i = 0; i < kN; ++i) {
      for (std::size_t j = 0; j < kN; ++j) a[i][j] += weights[s] * x[i] * x[j];
      a[i][kN] += weights[s] * x[i];
    }
  }
  Features scale;
  for (std::size_t i = 0; i < kN; ++i) scale[i] = a[i][i] > 0 ? 1 / std::sqrt(a[i][i]) : 1;
  for (std::size_t i = 0; i < kN; ++i) {
    for (std::size_t j = 0; j < kN; ++j) a[i][j] *= scale[i] * scale[j];
    a[i][kN] *= scale[i];
    a[i][i] += kRidge;
  }
  // Positive definite, so elimination needs no pivots.
  for (std::size_t i = 0; i < kN; ++i) {
    for (std::size_t k = i + 1; k < kN; ++k) {
      const double factor = a[k][i] / a[i][i];
      for (std::size_t j = i; j <= kN; ++j) a[k][j] -= factor * a[i][j];
    }
  }
  Features result = {};
  for (std::size_t i = kN; i-- > 0;) {
    double rest = a[i][kN];
    for (std::size_t j = i + 1; j < kN; ++j) rest -= a[i][j] * result[j];
    result[i] = rest / a[i][i];
  }
  for (std::size_t i = 0; i < kN; ++i) result[i] *= scale[i];
  return result;
}

/// The same with the features of negative cost left out, the most negative (in its share of all
/// predicted time) first.
Features solve_costs(std::span<const StepSample> samples, std::span<const double> weights) {
  Features sums = {};
  for (const StepSample& s : samples) {
    const Features x = features_of(s.shape);
    for (std::size_t i = 0; i < kN; ++i) sums[i] += x[i];
  }
  Used used;
  used.fill(true);
  while (true) {
    const Features costs = solve(samples, weights, used);
    std::size_t worst = kN;
    for (std::size_t i = 0; i < kN; ++i) {
      if (costs[i] >= 0) continue;
      if (worst == kN || costs[i] * sums[i] < costs[worst] * sums[worst]) worst = i;
    }
    if (worst == kN) return costs;
    used[worst] = false;
  }
}

}  // namespace

void StepShape::add(const StepPart& part) {
  constexpr std::size_t kTogether = 8;
  n_tokens += part.n_tokens;
  n_sequences += 1;
  n_attended += part.n_tokens * part.first + part.n_tokens * (part.n_tokens + 1) / 2;
  for (std::size_t end = kTogether; end < part.n_tokens + kTogether; end += kTogether) {
    n_read += part.first + std::min(end, part.n_tokens);
  }
  n_logits += part.wants_logits ? 1 : 0;
}

StepShape shape_of(const Step& step) {
  StepShape shape;
  for (const StepPart& part : step.parts) shape.add(part);
  return shape;
}

Result<CostModel> CostModel::fit(std::span<const StepSample> samples) {
  if (samples.size() < kN) {
    return Error{ErrorCode::kResource, "calibration",
                 fmt::format("found {} measured steps, need {}", samples.size(), kN)};
  }
  std::vector<double> weights(samples.size(), 1);
  CostModel model(solve_costs(samples, weights));
  std::vector<double> errors;
  for (const StepSample& s : samples) {
    errors.push_back(std::abs(model.predict(s.shape) / s.seconds - 1));
  }
  // 1.345 standard deviations, which are 1.4826 median errors of normal ones (Huber 1964).
  const double limit = 1.345 * 1.4826 * percentile(errors, 0.5);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (errors[i] > limit) weights[i] = limit / errors[i];
  }
  return CostModel(solve_costs(samples, weights));
}

double CostModel::predict(const StepShape& shape) const {
  return std::max(kLeastSeconds, dot(features_of(shape), seconds_));
}

namespace {

struct Ratio {
  double measured;
  double predicted;
};

/// Fills bins of equal predicted time in the order of ratios; a step may lie in several.
Residuals::Group group_of(std::vector<Ratio> ratios) {
  std::ranges::sort(ratios, {}, [](const Ratio& r) { return r.measured / r.predicted; });
  Residuals::Group group;
  double total = 0;
  for (const Ratio& r : ratios) {
    group.up_to = std::max(group.up_to, r.predicted);
    total += r.predicted;
  }
  const double share = total / Residuals::kBins;
  std::size_t next = 0;
  double left = ratios[0].predicted;
  for (double& bin : group.ratios) {
    double room = share;
    while (left < room && next + 1 < ratios.size()) {
      bin += left / share * ratios[next].measured / ratios[next].predicted;
      room -= left;
      left = ratios[++next].predicted;
    }
    bin += room / share * ratios[next].measured / ratios[next].predicted;
    left -= room;
  }
  return group;
}

}  // namespace

Residuals Residuals::of(const CostModel& model, std::span<const StepSample> samples) {
  constexpr std::size_t kGroups = 4;
  std::vector<Ratio> all;
  for (const StepSample& s : samples) all.push_back({s.seconds, model.predict(s.shape)});
  std::ranges::sort(all, {}, &Ratio::predicted);
  Residuals residuals;
  for (std::size_t g = 0; g < kGroups; ++g) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(g * all.size() / kGroups);
    const auto end = all.begin() + static_cast<std::ptrdiff_t>((g + 1) * all.size() / kGroups);
    if (begin != end) residuals.groups_.push_back(group_of({begin, end}));
  }
  return residuals;
}

double Residuals::at(double predicted, double uniform) const {
  if (groups_.empty()) return 1;
  auto group = std::ranges::lower_bound(groups_, predicted, {}, &Group::up_to);
  if (group == groups_.end()) --group;
  return group->ratios[static_cast<std::size_t>(uniform * kBins)];
}

FitQuality quality_of(const CostModel& model, std::span<const StepSample> samples) {
  FitQuality quality;
  std::vector<double> errors;
  double measured = 0;
  double predicted = 0;
  double squared_error = 0;
  for (const StepSample& s : samples) {
    const double guess = model.predict(s.shape);
    errors.push_back(std::abs(guess / s.seconds - 1));
    measured += s.seconds;
    predicted += guess;
    squared_error += (guess - s.seconds) * (guess - s.seconds);
  }
  const double mean = measured / static_cast<double>(std::max<std::size_t>(1, samples.size()));
  double variance = 0;
  for (const StepSample& s : samples) variance += (s.seconds - mean) * (s.seconds - mean);
  quality.r2 = variance > 0 ? 1 - squared_error / variance : 0;
  quality.median_error = percentile(errors, 0.5);
  quality.p95_error = percentile(errors, 0.95);
  quality.total_ratio = measured > 0 ? predicted / measured : 1;
  return quality;
}

}  // namespace llm
