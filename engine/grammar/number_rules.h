#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"

namespace llm {

/// What bounds a JSON number; absent parts do not.
struct NumberBounds {
  const OrderedJson* minimum = nullptr;
  const OrderedJson* exclusive_minimum = nullptr;
  const OrderedJson* maximum = nullptr;
  const OrderedJson* exclusive_maximum = nullptr;
  const OrderedJson* multiple_of = nullptr;

  bool any() const {
    return minimum != nullptr || exclusive_minimum != nullptr || maximum != nullptr ||
           exclusive_maximum != nullptr || multiple_of != nullptr;
  }
};

/// An expression for the numbers within the bounds that are written without an exponent: integers
/// of at most 18 digits, others of at most 15, of which at most 6 are behind the point. So many are
/// told apart by a double, and rounding keeps their order, so that a reader sees the bounds kept.
/// Errors: kUsage, whose field is the keyword.
Result<std::string> number_expression(const NumberBounds& bounds, bool is_integer);

}  // namespace llm
