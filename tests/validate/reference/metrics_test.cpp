#include "validate/reference/diff/metrics.h"

#include "tests/support/test.h"

namespace llm {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfF = std::numeric_limits<float>::infinity();
constexpr double kInf = std::numeric_limits<double>::infinity();
using Vector = std::vector<float>;

}  // namespace

TEST_CASE("nmse is the error's share of the reference's energy", "[metrics]") {
  CHECK(nmse(Vector{1, 2, 3}, Vector{1, 2, 3}) == 0);
  CHECK(nmse(Vector{3, 4}, Vector{3, 5}) == 1.0 / 34);
  CHECK(nmse(Vector{0, 0}, Vector{3, 4}) == 1);
  CHECK(nmse(Vector{0, 0}, Vector{0, 0}) == 0);
  CHECK(nmse(Vector{0, 1e-30F}, Vector{0, 0}) == kInf);
  CHECK(nmse(Vector{3e38F, 0}, Vector{-3e38F, 0}) == 4);  // f32 squares would overflow
}

TEST_CASE("non-finite values fail every metric", "[metrics]") {
  const auto bad = GENERATE(values<float>({kNan, kInfF, -kInfF}));
  for (const auto& [a, e] :
       {std::pair(Vector{1, bad}, Vector{1, 2}), std::pair(Vector{1, 2}, Vector{1, bad}),
        std::pair(Vector{1, bad}, Vector{1, bad})}) {
    CHECK(nmse(a, e) == kInf);
    CHECK(max_abs_difference(a, e) == kInf);
    CHECK(cosine(a, e) == -1);
    const TapError error = compare(a, e, 2);
    CHECK(error.nmse == kInf);
    CHECK(error.max_abs == kInf);
    CHECK(error.cos_min == -1);
    CHECK(error.worst_feature == 1);
    CHECK(error.nonfinite_actual + error.nonfinite_expected >= 1);
  }
}

TEST_CASE("cosine depends on direction only", "[metrics]") {
  CHECK(cosine(Vector{1, 0}, Vector{5, 0}) == 1);
  CHECK(cosine(Vector{1, 0}, Vector{0, 2}) == 0);
  CHECK(cosine(Vector{1, 1}, Vector{-2, -2}) == Approx(-1));
  CHECK(cosine(Vector{0, 0}, Vector{0, 0}) == 1);
  CHECK(cosine(Vector{0, 0}, Vector{0, 1}) == 0);
}

TEST_CASE("percentiles are by nearest rank", "[metrics]") {
  std::vector<double> values;
  for (int i = 1; i <= 40; ++i) values.push_back(i);
  CHECK(nearest_rank(values, 0) == 1);
  CHECK(nearest_rank(values, 0.05) == 2);
  CHECK(nearest_rank(values, 0.051) == 3);
  CHECK(nearest_rank(values, 0.5) == 20);
  CHECK(nearest_rank(values, 1) == 40);
  CHECK(nearest_rank(std::vector<double>{7}, 0.5) == 7);
}

TEST_CASE("compare finds the worst element and row", "[metrics]") {
  Vector expected(20 * 4);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<float>(i % 7) + 1;
  Vector actual = expected;
  actual[13 * 4 + 2] = -3;
  const TapError error = compare(actual, expected, 4);
  CHECK(error.worst_row == 13);
  CHECK(error.worst_feature == 2);
  CHECK(error.worst_actual == -3);
  CHECK(error.worst_expected == expected[54]);
  CHECK(error.max_abs == static_cast<double>(expected[54] + 3));
  CHECK(error.cos_min < 0.9);
  CHECK(error.cos_p5 == error.cos_min);  // one row of 20 is exactly 5 %
  CHECK(error.cos_median == Approx(1));
  CHECK(error.snr_db == Approx(-10 * std::log10(error.nmse)));
  CHECK(compare(expected, expected, 4).snr_db == kInf);
}

}  // namespace llm
