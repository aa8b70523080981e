#pragma once

#include <cfloat>
#include <cmath>
#include <limits>

namespace llm::contract {

static_assert(std::numeric_limits<double>::is_iec559 && FLT_EVAL_METHOD == 0,
              "every operation of docs/numerics.md rounds to its own format");

/// The unevaluated sum of two f64, |low| at most half a unit in the last place of high: about 106
/// significant bits. Its operations are fixed sequences of f64 +, -, *, / and fma, each of which
/// IEEE 754 rounds exactly, so any machine gives the same bits. Their relative error is below
/// 2^-100 where nothing under- or overflows and a sum does not cancel.
struct DoubleDouble {
  double high = 0;
  double low = 0;
};

/// a + b without error. @pre |a| >= |b|, or a = 0
inline DoubleDouble ordered_sum(double a, double b) {
  const double high = a + b;
  return {high, b - (high - a)};
}

/// a + b without error.
inline DoubleDouble exact_sum(double a, double b) {
  const double high = a + b;
  const double of_b = high - a;
  return {high, (a - (high - of_b)) + (b - of_b)};
}

/// a * b without error.
inline DoubleDouble exact_product(double a, double b) {
  const double high = a * b;
  return {high, std::fma(a, b, -high)};
}

inline DoubleDouble operator-(DoubleDouble a) { return {-a.high, -a.low}; }

inline DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble high = exact_sum(a.high, b.high);
  const DoubleDouble low = exact_sum(a.low, b.low);
  const DoubleDouble sum = ordered_sum(high.high, high.low + low.high);
  return ordered_sum(sum.high, sum.low + low.low);
}

inline DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble high = exact_product(a.high, b.high);
  return ordered_sum(high.high, high.low + (a.high * b.low + a.low * b.high));
}

/// The quotient of the high parts, then that of the remainder.
inline DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
  const double quotient = a.high / b.high;
  const DoubleDouble rest = a + -(b * DoubleDouble{quotient, 0});
  return ordered_sum(quotient, rest.high / b.high);
}

}  // namespace llm::contract
