// Filters, penalties and draws are compared with plain loops in sampler_order_test.cpp; here is
// the rest.

#include "engine/sampler/sampler.h"

#include "tests/engine/sampler_cases.h"
#include "tests/support/host_float_mode.h"
#include "tests/support/test.h"

namespace llm {
TEST_CASE("the host's float mode changes no probability", "[sampler]") {
  std::vector<float> logits(1000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 101) / 7;
  const auto expected = *Sampler(SamplerOptions{}).distribution(logits, {}, 0);
  const Logprobs expected_logs = logprobs_of(logits, 3, 5);
  const test::HostFloatMode host;
  const auto row = *Sampler(SamplerOptions{}).distribution(logits, {}, 0);
  REQUIRE(row.size() == expected.size());
  for (std::size_t i = 0; i < row.size(); ++i) {
    REQUIRE(row[i].id == expected[i].id);
    REQUIRE(row[i].probability == expected[i].probability);
  }
  REQUIRE(logprobs_of(logits, 3, 5).chosen.logprob == expected_logs.chosen.logprob);
  REQUIRE(test::HostFloatMode::stands());
}

TEST_CASE("no temperature makes the distribution non-finite", "[sampler]") {
  const float temperature = GENERATE(1e-38F, 1e-10F, 100.0F);
  const std::vector<float> logits = {1e30F, -1e30F, 1e30F, -std::numeric_limits<float>::infinity()};
  const auto row = *Sampler({.temperature = temperature}).distribution(logits, {}, 0);
  REQUIRE(row[0].probability == 0.5F);
  REQUIRE(row[1].probability == 0.5F);
  REQUIRE(row[1].id == 2);
}

TEST_CASE("logits that are no numbers are refused with the position", "[sampler]") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const SamplerRow& row : generated_sampler_rows()) {
    std::vector<std::vector<float>> bad = {std::vector<float>(row.logits.size(), -kInf)};
    for (std::size_t i = 0; i < row.logits.size(); ++i) {
      for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), kInf}) {
        bad.push_back(row.logits);
        bad.back()[i] = wrong;
      }
    }
    for (const auto& logits : bad) {
      for (const float temperature : {0.0F, 0.8F})
        test::must_fail(Sampler({.temperature = temperature}).sample(logits, row.past, 12345),
                        ErrorCode::kNonFinite, {"12345"});
    }
  }
}

TEST_CASE("log probabilities are those of f64", "[sampler]") {
  for (const SamplerRow& row : generated_sampler_rows()) {
    CAPTURE(row.name);
    const std::vector<double> x(row.logits.begin(), row.logits.end());
    const double largest = std::ranges::max(x);
    double sum = 0;
    for (const double logit : x) sum += std::exp(logit - largest);
    std::vector<TokenId> order(x.size());
    std::iota(order.begin(), order.end(), 0);
    const auto logit_of = [&](TokenId id) { return x[static_cast<std::size_t>(id)]; };
    std::ranges::stable_sort(order, std::greater<>(), logit_of);
    const auto check = [&](const TokenLogprob& found, TokenId id) {
      const double exact = logit_of(id) - largest - std::log(sum);
      // n additions and exps, then log(sum exp) and its difference from the logit, each rounded.
      const double limit =
          (static_cast<double>(x.size()) + 2 * std::abs(largest) + 2 * std::abs(exact)) * 0x1p-52;
      CHECK(found.id == id);
      CHECK((found.logprob == exact || std::abs(found.logprob - exact) <= limit));
    };
    for (const std::size_t n_top : {std::size_t{0}, std::size_t{1}, std::size_t{5}, x.size()}) {
      const Logprobs found = logprobs_of(row.logits, order.back(), n_top);
      check(found.chosen, order.back());
      REQUIRE(found.top.size() == std::min(n_top, x.size()));
      for (std::size_t i = 0; i < found.top.size(); ++i) check(found.top[i], order[i]);
    }
  }
}

TEST_CASE("draws are Philox4x32-10's published numbers", "[sampler]") {
  // Known answers of the Random123 distribution (kat_vectors, philox4x32 10): counter and key all
  // zero give 6627e8d5 e169c58d ...; all ones give 408f276d 41c83b0e ....
  constexpr std::uint64_t kOnes = ~std::uint64_t{0};
  const auto expected = [](std::uint64_t word) {
    return static_cast<double>(word >> 11) * 0x1p-53;
  };
  REQUIRE(uniform_draw(0, 0, 0) == expected(0xe169c58d6627e8d5));
  REQUIRE(uniform_draw(kOnes, kOnes, kOnes) == expected(0x41c83b0e408f276d));
}

}  // namespace llm
