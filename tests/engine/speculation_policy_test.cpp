// How much is proposed, on machines and texts that are given. No test looks at a clock.

#include "engine/generation/speculation_policy.h"

#include "tests/support/test.h"

namespace llm {
namespace {

bool is_near(double value, double expected) { return std::abs(value - expected) < 0.05 * expected; }

/// A machine on which a pass of n rows takes 1 + slope * (n - 1), and a text whose tokens are
/// guessed right with probability `right`.
struct Machine {
  double slope;
  double proposal_cost;
  double right;
  double catch_up = 0;  ///< of a proposal, for each token since the last one

  /// Tokens a unit of time, where a token without speculation takes one.
  double speed(std::size_t n_tokens, std::uint64_t seed, double noise = 0) const {
    SpeculationPolicy policy;
    return speed(n_tokens, seed, noise, policy);
  }
  double speed(std::size_t n_tokens, std::uint64_t seed, double noise,
               SpeculationPolicy& policy) const {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(0, 1);
    double time = 0;
    std::size_t tokens = 0;
    std::size_t unread = 0;
    while (tokens < n_tokens) {
      const std::size_t proposed = policy.length(0);
      std::size_t accepted = 0;
      while (accepted < proposed && uniform(random) < right) ++accepted;
      const double pass = 1 + slope * static_cast<double>(proposed);
      const double proposal = proposal_cost * static_cast<double>(proposed) +
                              (proposed > 0 ? catch_up * static_cast<double>(unread) : 0);
      // A neighbour on the machine: now and then a pass takes many times as long.
      const double busy = uniform(random) < noise ? 20 : 1;
      policy.note({.grade = 0,
                   .proposed = proposed,
                   .accepted = accepted,
                   .refuted = accepted < proposed,
                   .pass_seconds = pass * busy * 0.01,
                   .proposal_seconds = proposal * 0.01});
      time += pass + proposal;
      tokens += 1 + accepted;
      unread = proposed > 0 ? 0 : unread + 1;
    }
    return static_cast<double>(tokens) / time;
  }
};

}  // namespace

TEST_CASE("costs are a line through what was measured", "[speculation]") {
  PassCosts costs;
  CHECK(costs.single_seconds() == 0);
  const double first = costs.of(9);
  CHECK(first > 1);
  costs.note(9, 0.1);  // says nothing without a single row
  CHECK(costs.of(9) == first);
  for (int i = 0; i < 3; ++i) costs.note(1, 0.01);
  CHECK(costs.of(1) == 1);
  for (int i = 0; i < 4; ++i) {
    costs.note(5, 0.02);
    costs.note(9, 0.03);
  }
  CHECK(is_near(costs.of(5), 2));
  CHECK(is_near(costs.of(17), 5));
  for (int i = 0; i < 3; ++i) costs.note(5, 100);
  CHECK(is_near(costs.of(5), 2));
  for (int i = 0; i < 20; ++i) costs.note(5, 100);
  CHECK(costs.of(2) <= 3);
  for (int i = 0; i < 20; ++i) costs.note(5, 0.001);
  CHECK(costs.of(5) == 1);
}

TEST_CASE("passes of a number of rows cost what they took of late", "[speculation]") {
  PassCosts costs;
  for (int i = 0; i < 3; ++i) costs.note(1, 0.01);
  for (int i = 0; i < 3; ++i) {
    costs.note(4, 0.012);
    costs.note(8, 0.05);
  }
  CHECK(is_near(costs.of(4), 1.2));
  CHECK(is_near(costs.of(8), 5));
  for (int i = 0; i < 65; ++i) costs.note(2, 0.011);
  CHECK(is_near(costs.of(4), 1.3));  // the line
}

TEST_CASE("a median shrugs at single values and follows lasting ones", "[speculation]") {
  RunningMedian median;
  CHECK(median.value() == 0);
  median.add(100);  // a cold start
  CHECK(median.value() == 100);
  median.add(1);
  CHECK(median.value() == 1);
  median.add(2);
  CHECK(median.value() == 2);
  for (int i = 0; i < 40; ++i) median.add(i % 3 == 0 ? 1e9 : 1);
  CHECK(median.value() == 1);
  for (int i = 0; i < 8; ++i) median.add(3);
  CHECK(median.value() == 3);
}

TEST_CASE("nothing is proposed before a single row was measured", "[speculation]") {
  SpeculationPolicy policy;
  CHECK(policy.length(0) == 0);
  CHECK(SpeculationPolicy(5).length(3) == 5);
  for (int i = 0; i < 3; ++i) policy.note({.pass_seconds = 0.01});
  CHECK(policy.length(0) == 0);
  policy.note({.pass_seconds = 0.01});
  CHECK(policy.length(0) > 0);
}

TEST_CASE("a proposal must promise more than a little", "[speculation]") {
  SpeculationPolicy policy;
  for (int i = 0; i < 4; ++i) policy.note({.pass_seconds = 0.01});
  const auto note = [&](std::size_t accepted) {
    policy.note(
        {.proposed = 1, .accepted = accepted, .refuted = accepted == 0, .pass_seconds = 0.0147});
  };
  for (int i = 0; i < 20; ++i) {
    note(0);
    note(1);
  }
  // Half of the tokens are right: 1.5 tokens in the time of 1.47.
  CHECK(policy.length(0) == 0);
  for (int i = 0; i < 3; ++i) note(1);
  CHECK(policy.length(0) > 0);
}

TEST_CASE("a single row that took longer than several is measured again", "[speculation]") {
  SpeculationPolicy policy;
  for (int i = 0; i < 4; ++i) policy.note({.pass_seconds = 0.1});
  CHECK(policy.length(0) > 0);
  policy.note({.proposed = 3, .accepted = 3, .pass_seconds = 0.02});
  for (int i = 0; i < 4; ++i) {
    CHECK(policy.length(0) == 0);
    policy.note({.pass_seconds = 0.01});
  }
  CHECK(policy.length(0) > 0);
}

TEST_CASE("a single row is measured again now and then", "[speculation]") {
  SpeculationPolicy policy;
  for (int i = 0; i < 4; ++i) policy.note({.pass_seconds = 0.01});
  std::size_t n_single = 0;
  for (int i = 0; i < 300; ++i) {
    const std::size_t n = policy.length(0);
    n_single += n == 0 ? 1 : 0;
    policy.note(
        {.proposed = n, .accepted = n, .pass_seconds = 0.01 + 0.001 * static_cast<double>(n)});
  }
  CHECK(n_single == 4);
}

TEST_CASE("a text that begins to repeat is noticed", "[speculation]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    SpeculationPolicy policy;
    CHECK(Machine{0.2, 0, 0.02}.speed(300, seed, 0, policy) > 0.95);
    CHECK(Machine{0.2, 0, 0.95}.speed(600, seed, 0, policy) > 1.3);
    CHECK(Machine{0.2, 0, 0.95}.speed(300, seed, 0, policy) > 2);
  }
}

TEST_CASE("wrong proposals cost less than a twentieth of the time", "[speculation]") {
  const auto [slope, proposal, right] = GENERATE(table<double, double, double>({
      {0.05, 0, 0},
      {0.25, 0, 0},
      {0.25, 0, 0.1},
      {0.25, 0, 0.3},
      {1.0, 0, 0},
      {1.0, 0, 0.5},
      {1.0, 0, 0.9},
      {0.25, 0.3, 0},
      {0.25, 0.3, 0.3},
      {0.25, 1.5, 0.6},
  }));
  CAPTURE(slope, proposal, right);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    CHECK(Machine{slope, proposal, right}.speed(200, seed) > 0.95);
    CHECK(Machine{slope, proposal, right}.speed(2000, seed) > 0.95);
    CHECK(Machine{slope, proposal, right}.speed(2000, seed, 0.1) > 0.95);
  }
}

TEST_CASE("right proposals more than double the speed where rows are cheap", "[speculation]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    CHECK(Machine{0.2, 0, 0.95}.speed(300, seed) > 2);
    CHECK(Machine{0.1, 0, 0.9}.speed(300, seed) > 2);
    CHECK(Machine{0.05, 0.1, 0.85}.speed(300, seed) > 2);
    CHECK(Machine{0.2, 0, 0.95}.speed(300, seed, 0.1) > 1.5);
  }
}

TEST_CASE("a proposer that must read what it missed is given a second chance at once",
          "[speculation]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    CHECK(Machine{0.3, 0.06, 0.9, 0.1}.speed(600, seed) > 1.4);
  }
}

}  // namespace llm
