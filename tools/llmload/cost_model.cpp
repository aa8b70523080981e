#include "tools/llmload/cost_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

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

/// The costs, none below 0, with the least sum of weight * (predicted / measured - 1)^2: descent
/// along one cost after the other, over the normal equations.
Features least_squares(std::span<const StepSample> samples, std::span<const double> weights) {
  constexpr int kSweeps = 100000;
  constexpr double kStill = 1e-12;  // a change in units of the whole
  std::array<Features, kN> a = {};
  Features b = {};
  for (std::size_t s = 0; s < samples.size(); ++s) {
    Features x = features_of(samples[s].shape);
    for (double& value : x) value /= samples[s].seconds;
    for (std::size_t i = 0; i < kN; ++i) {
      for (std::size_t j = 0; j < kN; ++j) a[i][j] += weights[s] * x[i] * x[j];
      b[i] += weights[s] * x[i];
    }
  }
  Features costs = {};
  double change = 1;
  for (int sweep = 0; sweep < kSweeps && change > kStill; ++sweep) {
    change = 0;
    for (std::size_t i = 0; i < kN; ++i) {
      if (a[i][i] == 0) continue;
      double rest = b[i] + a[i][i] * costs[i];
      for (std::size_t j = 0; j < kN; ++j) rest -= a[i][j] * costs[j];
      const double next = std::max(0.0, rest / a[i][i]);
      change = std::max(change, std::abs(next - costs[i]) * a[i][i] / b[i]);
      costs[i] = next;
    }
  }
  return costs;
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
    return Error{ErrorCode::kResource, "--training",
                 fmt::format("found {} measured steps, need {}", samples.size(), kN)};
  }
  std::vector<double> weights(samples.size(), 1);
  const CostModel model(least_squares(samples, weights));
  std::vector<double> errors;
  for (const StepSample& s : samples) {
    errors.push_back(std::abs(model.predict(s.shape) / s.seconds - 1));
  }
  // 1.345 standard deviations, which are 1.4826 median errors of normal ones (Huber 1964).
  const double limit = 1.345 * 1.4826 * percentile(errors, 0.5);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (errors[i] > limit) weights[i] = limit / errors[i];
  }
  return CostModel(least_squares(samples, weights));
}

double CostModel::predict(const StepShape& shape) const {
  const Features x = features_of(shape);
  double sum = 0;
  for (std::size_t i = 0; i < kN; ++i) sum += x[i] * seconds_[i];
  return std::max(kLeastSeconds, sum);
}

Residuals Residuals::of(const CostModel& model, std::span<const StepSample> samples) {
  constexpr std::size_t kGroups = 4;
  std::vector<std::pair<double, double>> times;  // predicted, measured
  for (const StepSample& s : samples) times.emplace_back(model.predict(s.shape), s.seconds);
  std::ranges::stable_sort(times, {}, [](const auto& time) { return time.first; });
  Residuals residuals;
  for (std::size_t g = 0; g < kGroups; ++g) {
    Group group{};
    double all_predicted = 0;
    double all_measured = 0;
    double sum = 0;
    for (std::size_t i = g * times.size() / kGroups; i < (g + 1) * times.size() / kGroups; ++i) {
      const auto [predicted, measured] = times[i];
      group.up_to = predicted;
      group.factors.push_back(measured / predicted);
      all_predicted += predicted;
      all_measured += measured;
      sum += group.factors.back();
    }
    if (group.factors.empty()) continue;
    const double mean = sum / static_cast<double>(group.factors.size());
    for (double& factor : group.factors) factor *= all_measured / all_predicted / mean;
    residuals.groups_.push_back(std::move(group));
  }
  return residuals;
}

double Residuals::at(double predicted, double uniform) const {
  if (groups_.empty()) return 1;
  auto group = std::ranges::lower_bound(groups_, predicted, {}, &Group::up_to);
  if (group == groups_.end()) --group;
  return group
      ->factors[static_cast<std::size_t>(uniform * static_cast<double>(group->factors.size()))];
}

FitQuality quality_of(const CostModel& model, std::span<const StepSample> samples) {
  std::vector<double> errors;
  double measured = 0;
  double predicted = 0;
  for (const StepSample& s : samples) {
    const double guess = model.predict(s.shape);
    errors.push_back(std::abs(guess / s.seconds - 1));
    measured += s.seconds;
    predicted += guess;
  }
  return {.n_steps = samples.size(),
          .median_error = percentile(errors, 0.5),
          .total_ratio = measured > 0 ? predicted / measured : 1};
}

}  // namespace llm
