#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "validate/report/report.h"

namespace llm {

/// A check of many cases: how many there were, how many differed, and the first of these.
struct Tally {
  std::string of = "cases";
  std::size_t n = 0;
  std::size_t n_failed = 0;
  std::string first = {};  ///< in words

  /// @param describe  called for the first that differs
  void add(bool passed, auto describe) {
    ++n;
    if (!passed && n_failed++ == 0) first = describe();
  }
  /// @param covered  what is said of cases that all passed
  CheckResult result(std::string name, std::string_view covered = "") const {
    const bool passed = n > 0 && n_failed == 0;
    return {std::move(name), passed,
            n_failed > 0 ? fmt::format("{} of {} {} differ, first {}", n_failed, n, of, first)
                         : fmt::format("{} {}{}{}", n, of, covered.empty() ? "" : "; ", covered)};
  }
};

}  // namespace llm
