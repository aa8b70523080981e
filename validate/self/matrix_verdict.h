#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "validate/report/report.h"

namespace llm {

// Parts of matrix_check.cpp.

/// One verdict over all matrices (or what `of` says), with the first that failed.
struct MatrixVerdict {
  std::string name;
  std::string of = "matrices";
  std::size_t matrices = 0;
  std::size_t failed = 0;
  std::string first = {};

  void add(bool passed, std::string words) {
    ++matrices;
    if (passed) return;
    if (failed++ == 0) first = std::move(words);
  }
  CheckResult result() const {
    if (failed == 0) return {name, true, fmt::format("{} {}", matrices, of)};
    return {name, false, fmt::format("{} of {} {} differ, first {}", failed, matrices, of, first)};
  }
};

/// Activations of unit size with what real ones have: a few large outliers, a block of zeros.
inline std::vector<float> noise(std::size_t n_tokens, std::size_t n_cols, std::size_t seed) {
  std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
  std::vector<float> x(n_tokens * n_cols);
  for (float& v : x) {
    const auto bits = static_cast<std::uint32_t>(random());
    v = static_cast<float>(bits >> 8) * 0x1p-23F - 1.0F;
    if (bits % 256 == 0) v *= 40.0F;
  }
  if (n_cols > 256) std::fill_n(x.begin(), 256, 0.0F);
  return x;
}

/// How many products differ in a bit, and the first of them.
struct Mismatch {
  std::size_t count = 0;
  std::size_t row = 0;
  float actual = 0;
  float expected = 0;

  void look(std::size_t at_row, float a, float e) {
    if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(e)) return;
    if (count++ > 0) return;
    row = at_row;
    actual = a;
    expected = e;
  }
  /// Adds what another comparison found.
  void look_all(const Mismatch& other) {
    const std::size_t all = count + other.count;
    if (count == 0) *this = other;
    count = all;
  }
};

}  // namespace llm
