#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "engine/generation/proposer.h"

namespace llm {

/// The median of the last values, the lower one of two: a machine that is busy for a moment spoils
/// nothing.
class RunningMedian {
 public:
  static constexpr std::size_t kValues = 7;

  std::size_t size() const { return n_; }
  /// 0 without a value.
  double value() const { return median_; }
  void add(double value);

 private:
  std::array<double, kValues> values_{};  ///< a ring
  std::size_t next_ = 0;
  std::size_t n_ = 0;
  double median_ = 0;
};

/// What a pass of several rows costs, in passes of a single one: what passes of so many rows took,
/// because kernels for few rows differ; where few were measured of late, a straight line through
/// all.
class PassCosts {
 public:
  static constexpr std::size_t kMostRows = 32;

  PassCosts();

  /// @pre 1 <= n_rows <= kMostRows
  void note(std::size_t n_rows, double seconds);
  /// 0 until it was measured.
  double single_seconds() const { return single_.value(); }
  /// What a row beyond the first adds, by the line.
  double slope() const { return slope_.value(); }
  /// @pre 1 <= n_rows <= kMostRows
  double of(std::size_t n_rows) const;

 private:
  RunningMedian single_;
  RunningMedian slope_;
  struct Measured {
    RunningMedian cost;
    std::size_t last_pass = 0;
  };
  std::array<Measured, kMostRows + 1> of_rows_;
  std::size_t n_passes_ = 0;
};

/// How many tokens to propose, so that text comes as fast as it can and never much slower than
/// without proposals (docs/speculation.md). Decides about time alone: no result depends on it.
class SpeculationPolicy {
 public:
  static constexpr std::size_t kMost = PassCosts::kMostRows - 1;

  /// What came of a pass and of the proposal in it.
  struct Outcome {
    std::size_t grade = 0;
    std::size_t proposed = 0;
    std::size_t accepted = 0;
    bool refuted = false;  ///< the first token behind the accepted ones was wrong
    double pass_seconds = 0;
    double proposal_seconds = 0;  ///< that the proposal took
  };

  /// @param fixed  the answer to everything, in place of what pays; at most kMost
  explicit SpeculationPolicy(std::optional<std::size_t> fixed = {});

  /// Tokens of a grade to propose: what is worth it; where nothing is, a few once in a while, or
  /// that would be so for ever.
  std::size_t length(std::size_t grade) const;
  void note(const Outcome& outcome);

  /// "a pass of 2, 9 rows costs 1.31, 2.44 single ones; ...", for people.
  std::string describe() const;

 private:
  /// How often a token was right behind right ones.
  struct Share {
    double value = 0.5;
    double n = 1;
    void add(bool right);
  };
  /// Of the tokens of a grade: of all of them, and by how many of the proposal stand before it.
  struct Acceptance {
    static constexpr std::size_t kPlaces = 4;  ///< the last one counts for those behind it, too
    Share all;
    std::array<Share, kPlaces> places;
    void add(std::size_t place, bool right);
    double at(std::size_t place) const;
  };
  double cost(std::size_t n_proposed) const;
  /// Whether a pass with so many may be lost.
  bool is_allowed(std::size_t n_proposed) const { return cost(n_proposed) - 1 <= allowance_; }
  std::size_t worth(std::size_t grade) const;
  void learn_cost(const Outcome& outcome);

  std::optional<std::size_t> fixed_;
  PassCosts costs_;
  RunningMedian proposal_cost_;  ///< of a token, in passes of a single row
  std::array<Acceptance, Proposer::kGrades> acceptance_;
  double allowance_;                ///< passes that may still be lost
  std::size_t n_single_wanted_;     ///< passes of a single row to come before the next proposal
  std::size_t since_single_ = 0;    ///< passes since one of a single row
  std::size_t since_proposal_ = 0;  ///< tokens since one was proposed
  std::size_t wait_;                ///< tokens until one is tried that is not worth it
};

}  // namespace llm
