#include "validate/reference/diff/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"

namespace llm {
namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();
}  // namespace

double nmse(std::span<const float> actual, std::span<const float> expected) {
  LLM_CHECK(actual.size() == expected.size());
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double e = static_cast<double>(expected[i]);
    const double difference = static_cast<double>(actual[i]) - e;
    error += difference * difference;
    power += e * e;
  }
  // A non-finite element makes one of the sums NaN or Inf: squares are never negative, so it cannot
  // cancel. (f32 squares cannot overflow f64.)
  if (!std::isfinite(error) || !std::isfinite(power)) return kInf;
  if (power == 0) return error == 0 ? 0 : kInf;
  return error / power;
}

double max_abs_difference(std::span<const float> actual, std::span<const float> expected) {
  LLM_CHECK(actual.size() == expected.size());
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference =
        std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i]));
    if (!std::isfinite(difference)) return kInf;
    largest = std::max(largest, difference);
  }
  return largest;
}

double cosine(std::span<const float> actual, std::span<const float> expected) {
  LLM_CHECK(actual.size() == expected.size());
  double dot = 0;
  double aa = 0;
  double ee = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double a = static_cast<double>(actual[i]);
    const double e = static_cast<double>(expected[i]);
    dot += a * e;
    aa += a * a;
    ee += e * e;
  }
  if (!std::isfinite(aa) || !std::isfinite(ee)) return -1;
  if (aa == 0 || ee == 0) return aa == ee ? 1 : 0;
  return std::clamp(dot / (std::sqrt(aa) * std::sqrt(ee)), -1.0, 1.0);
}

double snr_db(double nmse) { return nmse == 0 ? kInf : -10 * std::log10(nmse); }

double nearest_rank(std::span<const double> sorted, double p) {
  LLM_CHECK(!sorted.empty());
  const double rank = std::ceil(p * static_cast<double>(sorted.size()));
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

TapError compare(std::span<const float> actual, std::span<const float> expected,
                 std::size_t features) {
  LLM_CHECK(features > 0 && !expected.empty() && expected.size() % features == 0 &&
            actual.size() == expected.size());
  TapError out;
  out.nmse = nmse(actual, expected);
  out.snr_db = snr_db(out.nmse);
  std::size_t worst = 0;
  double worst_difference = -1;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    out.nonfinite_actual += std::isfinite(actual[i]) ? 0 : 1;
    out.nonfinite_expected += std::isfinite(expected[i]) ? 0 : 1;
    double difference = std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i]));
    if (!std::isfinite(difference)) difference = kInf;
    if (difference > worst_difference) {
      worst_difference = difference;
      worst = i;
    }
  }
  out.max_abs = worst_difference;
  out.worst_row = worst / features;
  out.worst_feature = worst % features;
  out.worst_actual = actual[worst];
  out.worst_expected = expected[worst];

  std::vector<double> cosines;
  for (std::size_t i = 0; i < expected.size(); i += features) {
    const auto a = actual.subspan(i, features);
    const auto e = expected.subspan(i, features);
    cosines.push_back(cosine(a, e));
    out.row_nmse = std::max(out.row_nmse, nmse(a, e));
  }
  std::ranges::sort(cosines);
  out.cos_min = cosines.front();
  out.cos_p5 = nearest_rank(cosines, 0.05);
  out.cos_median = nearest_rank(cosines, 0.5);
  return out;
}

}  // namespace llm
