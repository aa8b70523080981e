#pragma once

#include <cstddef>
#include <span>

namespace llm {

/// Normalized mean squared error: sum (a - e)^2 / sum e^2, accumulated in f64. Dimensionless, 0
/// means identical. Returns +inf on any non-finite input or an all-zero reference that differs, so
/// `value <= limit` cannot pass on NaN.
/// @pre actual.size() == expected.size(), here and below
double nmse(std::span<const float> actual, std::span<const float> expected);

/// Largest |a - e|; +inf on any non-finite input.
double max_abs_difference(std::span<const float> actual, std::span<const float> expected);

/// Cosine of the angle between two vectors, in [-1, 1]. Two zero vectors agree (1), one zero vector
/// does not (0). Returns -1 on any non-finite input, so `value >= limit` cannot pass on NaN.
double cosine(std::span<const float> actual, std::span<const float> expected);

/// Signal-to-noise ratio in dB of a normalized error: -10 log10(nmse). +inf for 0, -inf for +inf.
double snr_db(double nmse);

/// The value below which a share `p` of the sorted, ascending `values` lies, by nearest rank:
/// values[ceil(p n) - 1], so p = 0 is the least and p = 1 the greatest. @pre not empty
double nearest_rank(std::span<const double> sorted, double p);

/// How one activation differs from its reference. Cosines are per row (token position).
struct TapError {
  double nmse = 0;
  double row_nmse = 0;  ///< of the row where it is largest: a token among thousands counts
  double max_abs = 0;
  double cos_min = 1;
  double cos_p5 = 1;
  double cos_median = 1;
  double snr_db = 0;
  std::size_t worst_row = 0;      ///< where |a - e| is largest (the first non-finite one, if any)
  std::size_t worst_feature = 0;  ///< its index in the row
  float worst_actual = 0;
  float worst_expected = 0;
  std::size_t nonfinite_actual = 0;    ///< NaN and Inf counted
  std::size_t nonfinite_expected = 0;  ///< in the reference: it is broken, the comparison fails
};

/// Compares two [rows, features] arrays. @pre equal sizes, a multiple of features >= 1, not empty
/// Cost: three passes in f64.
TapError compare(std::span<const float> actual, std::span<const float> expected,
                 std::size_t features);

}  // namespace llm
