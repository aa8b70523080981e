// Filters, draws, refusals and log probabilities are held against two definitions, in
// sampler_order_test.cpp and in the check of llmcheck --self (tests/validate/self). Here is the
// rest.

#include "engine/sampler/sampler.h"

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
