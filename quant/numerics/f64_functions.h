#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "quant/numerics/double_double.h"

// The functions of docs/numerics.md in f64: cos, sin, log and power. Each is the fixed sequence of
// exactly rounded operations that stands here, so that no C library decides a bit.
// Coefficients are those of the Taylor series, sums that matter are DoubleDoubles, and the error
// before the last rounding, stated with each function, is far below that rounding's own.

namespace llm::contract {

struct CosSin {
  double cos;
  double sin;
};

namespace detail {

/// 1 / n! for n up to 18, where n! is exact, rounded once.
inline constexpr auto kInverseFactorials = [] {
  std::array<double, 19> values{};
  double factorial = 1;
  for (std::size_t n = 0; n < values.size(); ++n) {
    if (n > 0) factorial *= static_cast<double>(n);
    values[n] = 1 / factorial;
  }
  return values;
}();

/// 1/n! - z (1/(n+2)! - z (1/(n+4)! ...)) to 1/(n+12)!
template <std::size_t n>
inline double alternating_series(double z) {
  constexpr const auto& k = kInverseFactorials;
  double sum = k[n + 12];
  for (std::size_t i = 6; i-- > 0;) sum = k[n + 2 * i] - z * sum;
  return sum;
}

// Each part is the f64 nearest to what those before it leave, so it is in magnitude at most 2^-53
// of the one before.
inline constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
inline constexpr std::array<double, 3> kHalfPi = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54,
                                                  -0x1.f1976b7ed8fbcp-110};
inline constexpr DoubleDouble kLn2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
/// Adding it to a number of magnitude up to 2^51 rounds that to an integer, half to even, whose
/// lowest bits are then those of the sum.
inline constexpr double kMagicF64 = 0x1.8p+52;

/// x - k * (pi / 2) for 0 <= x <= 2^40 and k the integer next to x / (pi / 2).
///
/// k * kHalfPi[0] and k * kHalfPi[1] are taken without error. What is left out of pi / 2 is below
/// 2^-163, k times it below 2^-123; a double up to 2^40 comes to a multiple of pi / 2 no closer
/// than 2^-61 or so, and there the difference has been exact up to the last sum: the relative error
/// is below 2^-58 in this worst case, and about 2^-100 otherwise.
inline DoubleDouble minus_half_pis(double x, double k) {
  const DoubleDouble first = exact_product(k, kHalfPi[0]);
  const DoubleDouble second = exact_product(k, kHalfPi[1]);
  const DoubleDouble a = exact_sum(x, -first.high);
  const DoubleDouble b = exact_sum(a.high, -first.low);
  const DoubleDouble c = exact_sum(b.high, -second.high);
  return ordered_sum(c.high, c.low + (b.low + (a.low - second.low - k * kHalfPi[2])));
}

/// cos r and sin r for |r| <= pi / 4 (1 + 2^-12), z = r^2 <= 0.6173:
///   sin r = r - r z (1/3! - z (1/5! - ...))     to r^17
///   cos r = 1 - z (1/2 - z (1/4! - z (1/6! - ...)))     to r^18
/// The first term left out is below 2^-63. What begins with z/5! and z/6! is f64, relative error
/// below 2^-51, and counts for at most z^2 / 5! < 2^-8 of r and z^3 / 6! < 2^-11 of 1; 1/4! is f64,
/// z^2 / 4! < 2^-5 with half a unit in the last place; all else is DoubleDouble. So both are within
/// (1/2 + 2^-6) units in the last place.
inline CosSin cos_sin_near_zero(DoubleDouble r) {
  constexpr DoubleDouble kSixth = {0x1.5555555555555p-3, 0x1.5555555555555p-57};
  const DoubleDouble z = r * r;
  const DoubleDouble sixth = ordered_sum(kSixth.high, -(z.high * alternating_series<5>(z.high)));
  const DoubleDouble of_sin = r * (z * DoubleDouble{sixth.high, sixth.low + kSixth.low});
  const DoubleDouble sin = ordered_sum(r.high, -of_sin.high);
  const DoubleDouble of_z =
      z * ordered_sum(kInverseFactorials[4], -(z.high * alternating_series<6>(z.high)));
  const DoubleDouble half = ordered_sum(0.5, -of_z.high);
  const DoubleDouble of_cos = z * DoubleDouble{half.high, half.low - of_z.low};
  const DoubleDouble cos = ordered_sum(1, -of_cos.high);
  return {cos.high + (cos.low - of_cos.low), sin.high + (sin.low + (r.low - of_sin.low))};
}

inline double power_of_two(int n) {  // -1022 <= n <= 1023
  return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

/// log x for a finite x > 0.
///
/// x = 2^k m with m next to 1, between sqrt(1/2) and sqrt(2), and with s = (m - 1) / (m + 1)
///   log m = 2 s (1 + s^2/3 + s^4/5 + ...),  s^2 < 0.0295, to s^42: what is left out is below
///   2^-111.
/// m - 1 is exact. For k = 0 nothing cancels, and for another |log m| <= |k log 2| / 2: the
/// relative error is below 2^-97.
inline DoubleDouble log_of(double x) {
  static const auto kInverseOdds = [] {  // 1 / (2 i + 1)
    std::array<DoubleDouble, 22> values{};
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = DoubleDouble{1, 0} / DoubleDouble{2.0 * static_cast<double>(i) + 1, 0};
    return values;
  }();
  constexpr std::uint64_t kFraction = (std::uint64_t{1} << 52) - 1;
  int k = -1023;
  if (x < std::numeric_limits<double>::min()) {
    x *= power_of_two(54);
    k -= 54;
  }
  const auto bits = std::bit_cast<std::uint64_t>(x);
  k += static_cast<int>(bits >> 52);
  double m = std::bit_cast<double>((bits & kFraction) | (std::uint64_t{1023} << 52));
  if (m > 0x1.6a09e667f3bcdp+0) {
    m /= 2;
    ++k;
  }
  const DoubleDouble s = DoubleDouble{m - 1, 0} / exact_sum(m, 1);
  const DoubleDouble square = s * s;
  DoubleDouble sum;
  for (std::size_t i = kInverseOdds.size(); i-- > 0;) sum = square * sum + kInverseOdds[i];
  return DoubleDouble{2 * s.high, 2 * s.low} * sum + kLn2 * DoubleDouble{static_cast<double>(k), 0};
}

}  // namespace detail

/// Beyond it cos_sin() knows too little of pi.
inline constexpr double kMaxAngle = 0x1p+40;

/// cos x and sin x, each within 0.52 units in the last place for |x| <= kMaxAngle: in units of the
/// quarter turns next to x, cos_sin_near_zero() of what is left. NaN beyond, and for NaN.
inline CosSin cos_sin(double x) {
  const double magnitude = std::abs(x);
  if (!(magnitude <= kMaxAngle)) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    return {kNan, kNan};
  }
  const double shifted = magnitude * detail::kTwoOverPi + detail::kMagicF64;
  const double quarters = shifted - detail::kMagicF64;
  const CosSin of = detail::cos_sin_near_zero(detail::minus_half_pis(magnitude, quarters));
  CosSin out = of;
  switch (std::bit_cast<std::uint64_t>(shifted) % 4) {
    case 1:
      out = {-of.sin, of.cos};
      break;
    case 2:
      out = {-of.cos, -of.sin};
      break;
    case 3:
      out = {of.sin, -of.cos};
      break;
    default:
      break;
  }
  return {out.cos, std::signbit(x) ? -out.sin : out.sin};
}

/// The natural logarithm, within (1/2 + 2^-40) units in the last place. NaN unless x is finite and
/// above 0.
inline double log(double x) {
  if (!(x > 0 && x <= std::numeric_limits<double>::max()))
    return std::numeric_limits<double>::quiet_NaN();
  return detail::log_of(x).high;
}

/// x^y = exp(y log x), within (1/2 + 2^-40) units in the last place. NaN unless x is finite and
/// above 0 and |y log x| <= 700, where every result is a normal number.
///
/// v = y log x = n log 2 + r, |r| <= 0.3466, and by Taylor's series
///   exp r = 1 + r (1 + r/2 (1 + r/3 (...)))  to r^27: what is left out is below 2^-140.
/// v has 2^-97 of itself as an error, so at most 2^-87.
inline double power(double x, double y) {
  constexpr double kMost = 700;
  constexpr int kLastTerm = 27;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (!(x > 0 && x <= std::numeric_limits<double>::max())) return kNan;
  const DoubleDouble v = detail::log_of(x) * DoubleDouble{y, 0};
  if (!(std::abs(v.high) <= kMost)) return kNan;
  const double n = (v.high / detail::kLn2.high + detail::kMagicF64) - detail::kMagicF64;
  const DoubleDouble r = v + -(detail::kLn2 * DoubleDouble{n, 0});
  DoubleDouble sum = {1, 0};
  for (int i = kLastTerm; i > 0; --i)
    sum = r * sum / DoubleDouble{static_cast<double>(i), 0} + DoubleDouble{1, 0};
  return sum.high * detail::power_of_two(static_cast<int>(n));
}

}  // namespace llm::contract
