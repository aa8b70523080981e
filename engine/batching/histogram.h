#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace llm {

/// How many values there were up to each of a few limits.
class Histogram {
 public:
  /// @param limits  ascending
  explicit Histogram(std::vector<double> limits)
      : limits_(std::move(limits)), counts_(limits_.size() + 1) {}

  void add(double value);

  const std::vector<double>& limits() const { return limits_; }
  /// One a limit: values at most that and above the limit before it; then those above all limits.
  const std::vector<std::uint64_t>& counts() const { return counts_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> limits_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

}  // namespace llm
