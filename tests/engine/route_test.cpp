// Which experts a row goes through, and by which weights (docs/numerics.md, "Experts").

#include "engine/forward/route.h"

#include "tests/support/test.h"

namespace llm {
namespace {

struct Routed {
  std::vector<std::uint32_t> chosen;
  std::vector<float> weights;
};

Routed routed(const std::vector<float>& logits, std::size_t k, const FfnSpec& spec = {},
              const std::vector<float>& bias = {}) {
  Routed out{std::vector<std::uint32_t>(k), std::vector<float>(k)};
  route(spec, logits, bias, out.chosen, out.weights);
  return out;
}

}  // namespace

TEST_CASE("a row goes through the experts of the largest logits, of equal ones the lower id",
          "[route]") {
  using Ids = std::vector<std::uint32_t>;
  CHECK(routed({1, 3, 2, 0}, 2).chosen == Ids{1, 2});
  CHECK(routed({5, 1, 1, 1}, 2).chosen == Ids{0, 1});
  CHECK(routed({1, 1, 1, 5}, 3).chosen == Ids{0, 1, 3});
  CHECK(routed({0, 0, 0, 0}, 3).chosen == Ids{0, 1, 2});
  CHECK(routed({-0.0F, 0.0F, -1}, 1).chosen == Ids{0});
  CHECK(routed({2, 1}, 2).chosen == Ids{0, 1});
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(routed({-infinity, -infinity, 1}, 2).chosen == Ids{0, 2});
}

TEST_CASE("a router of sigmoids chooses by their sum with the bias, and weighs without it",
          "[route]") {
  const FfnSpec spec{.router = Router::kSigmoid, .experts_scale = 2};
  const Routed found = routed({0, 2, 0, -3}, 2, spec, {0.5F, -0.5F, 0.25F, 0});
  CHECK(found.chosen == std::vector<std::uint32_t>{0, 2});
  CHECK(found.weights == std::vector<float>{1, 1});  // 2 * 0.5 / (0.5 + 0.5)
  CHECK(routed({0, 2, 0, -3}, 2, spec).chosen == std::vector<std::uint32_t>{0, 1});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float weight : routed({1, nan, 3}, 2, spec).weights) CHECK(std::isnan(weight));
}

TEST_CASE("a softmax with a bias chooses by its probabilities and the bias", "[route]") {
  // Probabilities 0.5, 0.25, 0.125, 0.125: by the logits and the bias, 3 would come before 1.
  const float two = std::log(2.0F);
  const std::vector<float> logits = {2 * two, two, 0, 0};
  const Routed found = routed(logits, 2, {.experts_scale = 3}, {0, 0, -1, 0.1F});
  CHECK(found.chosen == std::vector<std::uint32_t>{0, 1});
  CHECK(std::abs(found.weights[0] - 2) < 1e-6F);
  CHECK(std::abs(found.weights[1] - 1) < 1e-6F);
  CHECK(routed(logits, 2, {}, {0, 0, 0, 0.2F}).chosen == std::vector<std::uint32_t>{0, 3});
}

TEST_CASE("weights that are not divided are the probabilities among all experts", "[route]") {
  const float two = std::log(2.0F);
  const FfnSpec whole{.weights_add_up = false, .experts_scale = 2};
  const Routed found = routed({2 * two, two, 0, 0}, 2, whole);
  CHECK(found.chosen == std::vector<std::uint32_t>{0, 1});
  CHECK(std::abs(found.weights[0] - 1) < 1e-6F);
  CHECK(std::abs(found.weights[1] - 0.5F) < 1e-6F);
  FfnSpec sigmoids = whole;
  sigmoids.router = Router::kSigmoid;
  CHECK(routed({0, -1, 0}, 2, sigmoids).weights == std::vector<float>{1, 1});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float weight : routed({1, nan, 3}, 2, whole).weights) CHECK(std::isnan(weight));
}

TEST_CASE("NaN and Inf of a router reach every weight", "[route]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Routed found = routed({9, 8, nan, 7}, 2);
  CHECK(found.chosen == std::vector<std::uint32_t>{0, 2});
  for (const float weight : found.weights) CHECK(std::isnan(weight));
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float weight : routed({infinity, infinity, 1}, 2).weights) CHECK(std::isnan(weight));
}

TEST_CASE("random logits are routed as sorting them says", "[route]") {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const std::size_t n = 1 + random() % 40;
    const std::size_t k = 1 + random() % n;
    std::vector<float> logits(n);
    for (float& logit : logits) logit = static_cast<float>(random() % 12) * 0.75F - 4;  // many ties
    std::vector<std::uint32_t> expected(n);
    std::iota(expected.begin(), expected.end(), 0U);
    std::ranges::stable_sort(expected, [&](auto a, auto b) { return logits[a] > logits[b]; });
    expected.resize(k);
    std::ranges::sort(expected);
    const Routed found = routed(logits, k);
    REQUIRE(found.chosen == expected);
    double sum = 0;
    for (const std::uint32_t id : expected) sum += std::exp(static_cast<double>(logits[id]));
    for (std::size_t j = 0; j < k; ++j) {
      const double weight = std::exp(static_cast<double>(logits[expected[j]])) / sum;
      REQUIRE(std::abs(static_cast<double>(found.weights[j]) - weight) < 1e-6);
    }
  }
}

}  // namespace llm
