// What --verify calls a difference: pure functions over the most likely tokens of each step.

#include "tests/support/test.h"
#include "validate/outputs/verify/verdict.h"

namespace llm {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A step over tokens 10.. with logits 9, 8, 7.5 unless others are given.
TopStep step(std::vector<TokenId> ids, std::vector<float> logits = {9, 8, 7.5F}) {
  return {std::move(ids), std::move(logits)};
}

}  // namespace

TEST_CASE("the top of a row is sorted, equal logits by id", "[verify]") {
  const std::vector<float> row = {1, 5, -2, 5, 7, 0};
  const TopStep top = top_step(row, 3);
  CHECK(top.ids == std::vector<TokenId>{4, 1, 3});
  CHECK(top.logits == std::vector<float>{7, 5, 5});
  CHECK(top_step(row, row.size()).ids == std::vector<TokenId>{4, 1, 3, 0, 5, 2});
  CHECK(rank_in(top, 3) == 3U);
  CHECK_FALSE(rank_in(top, 0));
}

TEST_CASE("a preference is measured to the other choice, or at least to the end of the top",
          "[verify]") {
  const TopStep reference = step({10, 11, 12});
  CHECK(preference_gap(reference, 10) == 0);
  CHECK(preference_gap(reference, 11) == 1);
  CHECK(preference_gap(reference, 12) == 1.5);
  CHECK(preference_gap(reference, 99) == 1.5);
}

TEST_CASE("lockstep ends at the first difference", "[verify]") {
  const std::vector<TopStep> reference = {step({10, 11, 12}), step({20, 21, 22}),
                                          step({30, 31, 32})};
  SECTION("none") {
    const auto found = compare_lockstep(reference, reference);
    CHECK(found.agreed == 3);
    CHECK_FALSE(found.mismatch);
    CHECK(found.passed());
  }
  SECTION("each choice among the other's top") {
    // Nothing after the first difference is needed or looked at.
    const auto found =
        compare_lockstep(reference, std::vector{step({10, 12, 11}), step({22, 21, 20})});
    CHECK(found.agreed == 1);
    REQUIRE(found.mismatch);
    CHECK(found.mismatch->step == 1);
    CHECK(found.mismatch->reference == 20);
    CHECK(found.mismatch->engine == 22);
    CHECK(found.mismatch->reference_rank == 3U);
    CHECK(found.mismatch->engine_rank == 3U);
    CHECK(found.mismatch->gap == 1.5);
    CHECK(found.passed());
  }
  SECTION("the engine's choice is unknown to the reference") {
    const auto found = compare_lockstep(reference, std::vector{step({99, 10, 11})});
    CHECK(found.agreed == 0);
    CHECK_FALSE(found.mismatch->engine_rank);
    CHECK(found.mismatch->reference_rank == 2U);
    CHECK_FALSE(found.passed());
  }
  SECTION("the reference's choice is unknown to the engine") {
    const auto found = compare_lockstep(reference, std::vector{step({11, 12, 13})});
    CHECK(found.mismatch->engine_rank == 2U);
    CHECK_FALSE(found.mismatch->reference_rank);
    CHECK_FALSE(found.passed());
  }
}

TEST_CASE("fed the reference's tokens, every step counts, near ties apart", "[verify]") {
  const std::vector<TopStep> reference = {step({10, 11, 12}), step({20, 21, 22}),
                                          step({30, 31, 32}), step({40, 41, 42})};
  // Gaps: none, 1, 1.5 and, outside the top, at least 1.5.
  const std::vector<TopStep> engine = {step({10, 11, 12}), step({21, 20, 22}), step({32, 30, 31}),
                                       step({99, 40, 41})};
  const auto found = compare_forced(reference, engine);
  CHECK(found.steps == 4);
  REQUIRE(found.mismatches.size() == 3);
  CHECK(found.mismatches[0].step == 1);
  CHECK(found.mismatches[2].step == 3);
  CHECK(found.outside() == 1);
  // Two logits that move by 0.5 each may meet when they are 1 apart, not when they are more.
  CHECK(found.misses(0.5) == 2);
  CHECK(found.misses(0.499) == 3);
  CHECK(found.misses(0.75) == 0);
  CHECK(found.misses(0) == 3);
  CHECK(found.misses(kNaN) == 3);
  CHECK(compare_forced(reference, reference).mismatches.empty());
}

TEST_CASE("noise is the 99.9th percentile of all differences", "[verify]") {
  LogitNoise noise;
  CHECK(noise.p999() == 0);
  CHECK(noise.nmse() == 0);
  // 2000 differences 1..2000 in two parts, in no order: rank 1998.
  std::vector<float> actual;
  for (int i = 0; i < 2000; ++i) actual.push_back(static_cast<float>((i * 7) % 2000 + 1));
  const std::vector<float> zero(1000, 0);
  noise.add(std::span(actual).first(1000), zero);
  noise.add(zero, std::span(actual).last(1000));  // its sign does not count
  CHECK(noise.count() == 2000);
  CHECK(noise.p999() == 1998);
  CHECK(noise.max() == 2000);

  LogitNoise small;
  small.add(std::vector<float>{3, 5}, std::vector<float>{4, 3});
  CHECK(small.nmse() == Approx(5.0 / 25));
  LogitNoise broken;
  broken.add(std::vector<float>{std::numeric_limits<float>::quiet_NaN()}, std::vector<float>{1});
  CHECK_FALSE(broken.nmse() <= 1e9);
}

}  // namespace llm
