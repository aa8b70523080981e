#pragma once

#include <fmt/core.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/model/layer_spec.h"
#include "validate/report/report.h"

namespace llm {

// Parts of definition_check.cpp.

/// Relative error of one rounding to f32.
inline constexpr double kU = 0x1p-24;
/// Absolute error of one rounding to a denormal, and a margin for what is multiplied with it.
inline constexpr double kDenormal = 0x1p-148;
inline constexpr double kLargest = std::numeric_limits<float>::max();
/// Relative error of contract::exp: 1.1 units in the last place, each at most 2 u.
inline constexpr double kExpError = 2.2 * kU;

/// One function of the definition over all its calls: the largest share of its bound.
class Bounded {
 public:
  explicit Bounded(std::string name) : name_(std::move(name)) {}

  /// One value; NaN and infinite errors exceed every bound.
  void add(double actual, double exact, double bound, double argument) {
    ++calls_;
    const double error = std::abs(actual - exact);
    if (error == 0) return;
    const double share = error / bound;
    if (share <= worst_) return;  // NaN goes on
    worst_ = std::isnan(share) ? std::numeric_limits<double>::infinity() : share;
    words_ =
        fmt::format("at {:.9g}: {:.9g}, need {:.9g} within {:.3g}", argument, actual, exact, bound);
  }
  /// Equality, also of infinities and of the sign of a zero.
  void add_exact(double actual, double exact, double argument) {
    ++calls_;
    if (actual == exact && std::signbit(actual) == std::signbit(exact)) return;
    if (worst_ <= 1)
      words_ = fmt::format("at {:.9g}: {:.9g}, need {:.9g}", argument, actual, exact);
    worst_ = std::numeric_limits<double>::infinity();
  }
  CheckResult result(std::string_view covered) const {
    const std::string name = fmt::format("definition of {} against f64", name_);
    if (worst_ > 1) return {name, false, words_};
    return {name, calls_ > 0,
            fmt::format("{} values, {}; at most {:.2f} of the bound", calls_, covered, worst_)};
  }

 private:
  std::string name_;
  std::size_t calls_ = 0;
  double worst_ = 0;
  std::string words_;
};

/// Products of every weight type, which are no model's; definition_products.cpp.
CheckResult check_definition_of_products();

/// Gates, convolution, lengths and states; definition_delta_net.cpp.
std::vector<CheckResult> check_definition_of_delta_net(const DeltaNetSpec& spec);

inline double f64(float x) { return static_cast<double>(x); }

}  // namespace llm
