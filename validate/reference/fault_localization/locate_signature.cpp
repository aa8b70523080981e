#include "validate/reference/fault_localization/locate_signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/diff/metrics.h"

namespace llm {
namespace {

constexpr std::size_t kRun = 32;  ///< weights that share a scale in most quantized types
constexpr std::ptrdiff_t kFewFeatures = 4;

bool close_to(std::span<const float> actual, std::span<const float> expected, double tolerance) {
  return nmse(actual, expected) <= tolerance;
}

std::span<const float> rows(const TapMatrix& m, std::size_t begin, std::size_t end) {
  return std::span(m.values).subspan(begin * m.features, (end - begin) * m.features);
}

double root_mean_square(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

/// The inverse of half_to_interleaved.
TapMatrix to_halves(const TapMatrix& in, const SignatureOptions& options) {
  TapMatrix out = in;
  const std::size_t half = options.rope_dim / 2;
  for (std::size_t begin = 0; begin < in.values.size(); begin += options.head_dim) {
    for (std::size_t i = 0; i < half; ++i) {
      out.values[begin + i] = in.values[begin + 2 * i];
      out.values[begin + half + i] = in.values[begin + 2 * i + 1];
    }
  }
  return out;
}

/// Whether sorting every aligned run of `run` features makes the matrices equal.
bool equal_sorted(const TapMatrix& actual, const TapMatrix& expected, std::size_t run,
                  double tolerance) {
  std::vector<float> a = actual.values;
  std::vector<float> e = expected.values;
  for (std::size_t begin = 0; begin < a.size(); begin += run) {
    const auto from = static_cast<std::ptrdiff_t>(begin);
    const auto to = static_cast<std::ptrdiff_t>(begin + run);
    std::sort(a.begin() + from, a.begin() + to);
    std::sort(e.begin() + from, e.begin() + to);
  }
  return close_to(a, e, tolerance);
}

/// The smallest difference between distinct values of a run; 0 when all are equal.
double step_of(std::span<const float> run) {
  std::vector<float> sorted(run.begin(), run.end());
  std::ranges::sort(sorted);
  const double spread = static_cast<double>(sorted.back()) - static_cast<double>(sorted.front());
  double step = 0;
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const double gap = static_cast<double>(sorted[i]) - static_cast<double>(sorted[i - 1]);
    if (gap > 1e-4 * spread && (step == 0 || gap < step)) step = gap;
  }
  return step;
}

std::string list_of(std::span<const std::size_t> values) {
  return values.size() > 6 ? fmt::format("{}, ...", fmt::join(values.first(6), ", "))
                           : fmt::format("{}", fmt::join(values, ", "));
}

}  // namespace

Signature scale_signature(const TapMatrix& actual, const TapMatrix& expected, double tolerance) {
  double ae = 0;
  double ee = 0;
  for (std::size_t i = 0; i < actual.values.size(); ++i) {
    const auto e = static_cast<double>(expected.values[i]);
    ae += static_cast<double>(actual.values[i]) * e;
    ee += e * e;
  }
  if (ee == 0) return {};
  const double scale = ae / ee;
  std::vector<float> scaled(expected.values.size());
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    scaled[i] = static_cast<float>(scale * static_cast<double>(expected.values[i]));
  }
  const double off = scale - 1;
  if (off * off <= tolerance || !close_to(actual.values, scaled, tolerance)) return {};
  return {SignatureKind::kScale, fmt::format("the right values times {:.6g}", scale)};
}

Signature shift_signature(const TapMatrix& actual, const TapMatrix& expected, double tolerance) {
  const std::size_t n = expected.rows;
  if (n < 3) return {};
  for (const int shift : {1, -1}) {
    const std::size_t from = shift > 0 ? 1 : 0;
    if (!close_to(rows(actual, 1 - from, n - from), rows(expected, from, n - 1 + from), tolerance))
      continue;
    return {.kind = SignatureKind::kPositionShift,
            .text = fmt::format("row t holds what belongs to t {} 1", shift > 0 ? '+' : '-')};
  }
  return {};
}

Signature rope_signature(const TapMatrix& actual, const TapMatrix& expected,
                         const SignatureOptions& options) {
  if (options.head_dim == 0 || options.rope_dim < 4 || expected.features % options.head_dim != 0)
    return {};
  TapMatrix pairs = actual;
  half_to_interleaved(pairs, options.head_dim, options.rope_dim);
  const bool from_halves = close_to(pairs.values, expected.values, options.tolerance);
  if (!from_halves &&
      !close_to(to_halves(actual, options).values, expected.values, options.tolerance))
    return {};
  return {.kind = SignatureKind::kRopePermutation,
          .text = "right once each head is reordered between pairs and halves"};
}

Signature permutation_signature(const TapMatrix& actual, const TapMatrix& expected,
                                double tolerance) {
  if (!equal_sorted(actual, expected, expected.features, tolerance)) return {};
  for (std::size_t run = 2; run < expected.features; run *= 2) {
    if (expected.features % run != 0 || !equal_sorted(actual, expected, run, tolerance)) continue;
    return {SignatureKind::kPermutation,
            fmt::format("the right values in another order within runs of {}", run)};
  }
  return {SignatureKind::kPermutation, "the right values of each row in another order"};
}

namespace {

/// Least squares of `actual` by `expected`, each of `n` groups with a factor of its own; empty
/// where they do not explain it. @param group  of an element
template <typename Group>
std::vector<double> factors(const TapMatrix& actual, const TapMatrix& expected, double tolerance,
                            std::size_t n, const Group& group) {
  std::vector<double> ae(n);
  std::vector<double> ee(n);
  for (std::size_t i = 0; i < actual.values.size(); ++i) {
    const auto e = static_cast<double>(expected.values[i]);
    ae[group(i)] += static_cast<double>(actual.values[i]) * e;
    ee[group(i)] += e * e;
  }
  for (std::size_t g = 0; g < n; ++g) ae[g] = ee[g] > 0 ? ae[g] / ee[g] : 1;
  std::vector<float> scaled(expected.values.size());
  for (std::size_t i = 0; i < scaled.size(); ++i)
    scaled[i] = static_cast<float>(ae[group(i)] * static_cast<double>(expected.values[i]));
  return close_to(actual.values, scaled, tolerance) ? ae : std::vector<double>();
}

std::string range_of(const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  return fmt::format("{:.6g} to {:.6g}", least, most);
}

}  // namespace

Signature row_scale_signature(const TapMatrix& actual, const TapMatrix& expected,
                              double tolerance) {
  constexpr std::size_t kFewest = 4;  // a factor for each of fewer features says nothing
  if (expected.features < kFewest) return {};
  const auto found = factors(actual, expected, tolerance, expected.rows,
                             [&](std::size_t i) { return i / expected.features; });
  if (found.empty()) return {};
  return {SignatureKind::kRowScale,
          "the right values of each token times a factor of its own, " + range_of(found)};
}

Signature feature_scale_signature(const TapMatrix& actual, const TapMatrix& expected,
                                  double tolerance) {
  if (expected.rows < 2) return {};
  const auto found = factors(actual, expected, tolerance, expected.features,
                             [&](std::size_t i) { return i % expected.features; });
  if (found.empty()) return {};
  return {SignatureKind::kFeatureScale,
          "each feature times a factor of its own, the same for every token, " + range_of(found)};
}

Signature offset_signature(const TapMatrix& actual, const TapMatrix& expected, double tolerance) {
  if (expected.rows < 2) return {};
  std::vector<double> offset(expected.features);
  for (std::size_t i = 0; i < actual.values.size(); ++i) {
    offset[i % expected.features] +=
        (static_cast<double>(actual.values[i]) - static_cast<double>(expected.values[i])) /
        static_cast<double>(expected.rows);
  }
  std::vector<float> moved(expected.values.size());
  for (std::size_t i = 0; i < moved.size(); ++i)
    moved[i] =
        static_cast<float>(static_cast<double>(expected.values[i]) + offset[i % expected.features]);
  if (!close_to(actual.values, moved, tolerance)) return {};
  return {SignatureKind::kOffset, "the same row is added to every token"};
}

Signature high_bit_signature(const TapMatrix& actual, const TapMatrix& expected) {
  if (expected.features % kRun != 0) return {};
  double factor = 0;
  std::size_t runs = 0;
  for (std::size_t begin = 0; begin < expected.values.size(); begin += kRun) {
    const auto run = std::span(expected.values).subspan(begin, kRun);
    const double step = step_of(run);
    for (std::size_t i = 0; i < kRun; ++i) {
      const double error =
          std::abs(static_cast<double>(actual.values[begin + i]) - static_cast<double>(run[i]));
      if (error <= 1e-3 * step) continue;
      if (step == 0) return {};
      // Neighbouring codes may be absent from a run, so its least gap is a small multiple of a
      // step.
      const double ratio = error / step;
      if (factor == 0 || ratio > factor) factor = ratio;
      const double octave = std::log2(ratio);
      if (std::abs(octave - std::round(octave)) > 0.01) return {};
      ++runs;
    }
  }
  if (runs == 0 || factor < 3.9) return {};
  return {.kind = SignatureKind::kHighBit,
          .text = fmt::format("off by {:.0f} steps of the codes: a high bit", factor)};
}

Signature place_signature(const TapMatrix& actual, const TapMatrix& expected, double tolerance) {
  const double threshold = std::max(1e-6, std::sqrt(tolerance)) * root_mean_square(expected.values);
  std::vector<bool> wrong_feature(expected.features);
  std::vector<std::size_t> wrong_rows;
  for (std::size_t r = 0; r < expected.rows; ++r) {
    bool wrong = false;
    for (std::size_t f = 0; f < expected.features; ++f) {
      const std::size_t i = r * expected.features + f;
      const double error =
          std::abs(static_cast<double>(actual.values[i]) - static_cast<double>(expected.values[i]));
      if (error <= threshold) continue;
      wrong = true;
      wrong_feature[f] = true;
    }
    if (wrong) wrong_rows.push_back(r);
  }
  Signature out;
  const auto n_wrong = std::ranges::count(wrong_feature, true);
  if (n_wrong == 0) return out;
  if (wrong_rows.size() < expected.rows) {
    out = {SignatureKind::kRows, fmt::format("only in {} of {} tokens: {}", wrong_rows.size(),
                                             expected.rows, list_of(wrong_rows))};
  }
  const auto first =
      static_cast<std::size_t>(std::ranges::find(wrong_feature, true) - wrong_feature.begin());
  const bool all_after = static_cast<std::size_t>(n_wrong) * 10 >= (expected.features - first) * 9;
  if (first * 2 >= expected.features && all_after) {
    return {.kind = SignatureKind::kTail,
            .text = fmt::format("only from feature {} of {} on", first, expected.features)};
  }
  if (n_wrong <= kFewFeatures && expected.features > kRun) {
    std::vector<std::size_t> few;
    for (std::size_t f = 0; f < expected.features; ++f)
      if (wrong_feature[f]) few.push_back(f);
    return {.kind = SignatureKind::kFeatures,
            .text = fmt::format("only feature{} {} of {}; of a product: that row of the matrix",
                                few.size() == 1 ? "" : "s", list_of(few), expected.features)};
  }
  if (out.kind == SignatureKind::kRows || wrong_feature == std::vector(expected.features, true))
    return out;
  for (const std::size_t period : {16U, 32U, 64U, 128U, 256U}) {
    if (period >= expected.features || expected.features % period != 0) continue;
    bool repeats = true;
    for (std::size_t f = period; f < expected.features; ++f)
      repeats = repeats && wrong_feature[f] == wrong_feature[f - period];
    if (!repeats) continue;
    return {.kind = SignatureKind::kPeriod,
            .text = fmt::format("the wrong features repeat every {}", period)};
  }
  return out;
}

Signature find_signature(const TapMatrix& actual, const TapMatrix& expected,
                         const SignatureOptions& options) {
  const TapError error = compare(actual.values, expected.values, expected.features);
  if (error.nonfinite_actual > 0) {
    return {.kind = SignatureKind::kNonFinite,
            .text = fmt::format("{} NaN or Inf", error.nonfinite_actual)};
  }
  if (std::ranges::all_of(actual.values, [](float v) { return v == 0.0F; }))
    return {.kind = SignatureKind::kZero, .text = "all zero"};
  const double tolerance = options.tolerance;
  if (close_to(actual.values, expected.values, tolerance))
    return {.text = error.max_abs == 0 ? "" : "differs by rounding only"};
  for (const Signature& found :
       {scale_signature(actual, expected, tolerance), shift_signature(actual, expected, tolerance),
        rope_signature(actual, expected, options),
        permutation_signature(actual, expected, tolerance),
        row_scale_signature(actual, expected, tolerance), high_bit_signature(actual, expected),
        place_signature(actual, expected, tolerance),
        feature_scale_signature(actual, expected, tolerance)}) {
    if (found.kind != SignatureKind::kNone) return found;
  }
  return offset_signature(actual, expected, tolerance);
}

}  // namespace llm
