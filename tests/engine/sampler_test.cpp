#include "engine/sampler/sampler.h"

#include "tests/support/host_float_mode.h"
#include "tests/support/test.h"

namespace llm {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

const std::vector<float> kLogits = {2.0F, 1.0F, 0.5F, -1.0F, -3.0F};

std::vector<TokenId> kept(const SamplerOptions& options, const std::vector<float>& logits = kLogits,
                          const std::vector<TokenId>& past = {}) {
  std::vector<TokenId> ids;
  const auto row = *Sampler(options).distribution(logits, past, 0);
  for (const Candidate& candidate : row) ids.push_back(candidate.id);
  return ids;
}

SamplerOptions options_with(float temperature, std::size_t top_k, float top_p, float min_p) {
  SamplerOptions options;
  options.temperature = temperature;
  options.top_k = top_k;
  options.top_p = top_p;
  options.min_p = min_p;
  return options;
}

using Ids = std::vector<TokenId>;

bool close(float actual, double expected) {
  return std::abs(static_cast<double>(actual) - expected) < 1e-6;
}
bool close(double actual, double expected) { return std::abs(actual - expected) < 1e-12; }

double log_sum_exp(const std::vector<float>& logits) {
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  return std::log(total);
}

}  // namespace

TEST_CASE("an unfiltered distribution is the softmax of the logits", "[sampler]") {
  const auto row = *Sampler(SamplerOptions{}).distribution(kLogits, {}, 0);
  REQUIRE(row.size() == kLogits.size());
  for (const Candidate& candidate : row) {
    const double logit = kLogits[static_cast<std::size_t>(candidate.id)];
    REQUIRE(close(candidate.probability, std::exp(logit - log_sum_exp(kLogits))));
  }
}

TEST_CASE("top-p comes before min-p, which would leave it less", "[sampler]") {
  const std::vector<float> logits = {0.0F, std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  // Of a sum of 2.0, 60 % are two tokens; of the 1.5 that min-p would leave, one.
  REQUIRE(kept(options_with(1.0F, 0, 0.6F, 0.4F), logits) == Ids{0, 1});
  REQUIRE(kept(options_with(1.0F, 0, 0.6F, 0.0F), logits) == Ids{0, 1});
}

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

TEST_CASE("filters keep exactly the expected tokens", "[sampler]") {
  // Probabilities 0.607 0.223 0.135 0.030 0.004.
  REQUIRE(kept(options_with(1, 0, 0.8F, 0)) == Ids{0, 1});  // 0.830 before the third
  REQUIRE(kept(options_with(1, 0, 0.84F, 0)) == Ids{0, 1, 2});
  REQUIRE(kept(options_with(1, 0, 0.6F, 0)) == Ids{0});
  REQUIRE(kept(options_with(1, 0, 0.0F, 0)) == Ids{0});  // the first always stays
  REQUIRE(kept(options_with(1, 0, 1.0F, 0)) == Ids{0, 1, 2, 3, 4});
  REQUIRE(kept(options_with(1, 0, 1, 0.2F)) == Ids{0, 1, 2});  // at least 0.121
  REQUIRE(kept(options_with(1, 0, 1, 0.3F)) == Ids{0, 1});
  REQUIRE(kept(options_with(1, 0, 1, 1.0F)) == Ids{0});
  REQUIRE(kept(options_with(1, 3, 1, 0)) == Ids{0, 1, 2});
  REQUIRE(kept(options_with(1, 0, 1, 0)).size() == 5);   // 0 disables top-k
  REQUIRE(kept(options_with(1, 99, 1, 0)).size() == 5);  // more than there are
  // top-k first renormalizes what top-p sees: 0.607 / 0.830 = 0.731 before the second.
  REQUIRE(kept(options_with(1, 2, 0.7F, 0)) == Ids{0});
  // Top-p before min-p: 0.830 before the third, not 0.830 / 0.965.
  REQUIRE(kept(options_with(1, 0, 0.85F, 0.2F)) == Ids{0, 1, 2});
}

TEST_CASE("the two orders differ where temperature flattens", "[sampler]") {
  SamplerOptions options = options_with(2, 0, 0.8F, 0);
  REQUIRE(kept(options) == Ids{0, 1, 2});  // at T = 2: 0.433 0.263 0.205 before ...
  options.order = SamplerOrder::kLlamaCpp;
  REQUIRE(kept(options) == Ids{0, 1});
  const auto row = *Sampler(options).distribution(kLogits, {}, 0);
  REQUIRE(close(row[0].probability, 1 / (1 + std::exp(-0.5))));  // exp(1) : exp(0.5)
}

TEST_CASE("greedy takes the largest logit, ties the lower id", "[sampler]") {
  SamplerOptions options;
  options.temperature = 0;
  REQUIRE(*Sampler(options).sample(kLogits, {}, 0) == 0);
  REQUIRE(*Sampler(options).sample(std::vector<float>{-1, 3, 2, 3}, {}, 0) == 1);
  REQUIRE(*Sampler(options).sample(std::vector<float>{-kInf, -kInf, -7}, {}, 0) == 2);
}

TEST_CASE("equal logits are ordered by id", "[sampler]") {
  const std::vector<float> logits(40, 1.5F);
  REQUIRE(kept(options_with(1, 3, 1, 0), logits) == Ids{0, 1, 2});
}

TEST_CASE("no temperature makes the distribution non-finite", "[sampler]") {
  const float temperature = GENERATE(1e-38F, 1e-10F, 100.0F);
  const std::vector<float> logits = {1e30F, -1e30F, 1e30F, -kInf};
  const auto row = *Sampler(options_with(temperature, 0, 1, 0)).distribution(logits, {}, 0);
  REQUIRE(row[0].probability == 0.5F);
  REQUIRE(row[1].probability == 0.5F);
  REQUIRE(row[1].id == 2);
}

TEST_CASE("the repeat penalty lowers logits of either sign, each token once", "[sampler]") {
  SamplerOptions options;
  options.temperature = 0;
  options.repeat_penalty = 2;
  const std::vector<float> logits = {4, 3, -1, -1.5F};
  REQUIRE(*Sampler(options).sample(logits, Ids{0}, 0) == 1);        // 4 -> 2
  REQUIRE(*Sampler(options).sample(logits, Ids{0, 1, 1}, 0) == 0);  // 2, 1.5: not 0.75
  REQUIRE(*Sampler(options).sample(std::vector<float>{-1, -1.5F}, Ids{0}, 0) == 1);  // -2
  options.repeat_last_n = 2;
  REQUIRE(*Sampler(options).sample(logits, Ids{0, 2, 3}, 0) == 0);  // 0 is too long ago
  options.repeat_last_n = 0;
  REQUIRE(*Sampler(options).sample(logits, Ids{0}, 0) == 0);
  options.repeat_last_n = -1;
  REQUIRE(*Sampler(options).sample(logits, Ids{0, 2, 3, 2, 3}, 0) == 1);
}

TEST_CASE("a draw depends on seed, sequence and position only", "[sampler]") {
  SamplerOptions options;
  options.seed = 42;
  const std::vector<float> logits(1000, 0.0F);
  const auto draw = [&](std::uint64_t sequence, std::uint64_t position) {
    return *Sampler(options, sequence).sample(logits, {}, position);
  };
  std::vector<TokenId> forward;
  std::vector<TokenId> backward;
  for (std::uint64_t p = 0; p < 32; ++p) forward.push_back(draw(0, p));
  for (std::uint64_t p = 32; p-- > 0;) backward.insert(backward.begin(), draw(0, p));
  REQUIRE(forward == backward);
  REQUIRE(std::set<TokenId>(forward.begin(), forward.end()).size() > 24);
  std::vector<TokenId> other;
  for (std::uint64_t p = 0; p < 32; ++p) other.push_back(draw(1, p));
  REQUIRE(other != forward);
  options.seed = 43;
  other.clear();
  for (std::uint64_t p = 0; p < 32; ++p) other.push_back(draw(0, p));
  REQUIRE(other != forward);
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

TEST_CASE("the token drawn is where the draw falls in the cumulated distribution", "[sampler]") {
  SamplerOptions options;
  options.seed = 7;
  const Sampler sampler(options);
  const auto row = *sampler.distribution(kLogits, {}, 0);
  std::set<TokenId> seen;
  for (std::uint64_t position = 0; position < 200; ++position) {
    double mass = 0;
    std::size_t i = 0;
    const double draw = uniform_draw(7, 0, position);
    while (draw >= mass + static_cast<double>(row[i].probability)) {
      mass += static_cast<double>(row[i++].probability);
    }
    REQUIRE(*sampler.sample(kLogits, {}, position) == row[i].id);
    seen.insert(row[i].id);
  }
  REQUIRE(seen.size() >= 4);
}

TEST_CASE("logits that are no numbers are an error that names the position", "[sampler]") {
  const auto row = GENERATE(std::vector<float>{1, kNaN, 2}, std::vector<float>{1, kInf, 2},
                            std::vector<float>{-kInf, -kInf});
  const float temperature = GENERATE(0.0F, 0.8F);
  SamplerOptions options;
  options.temperature = temperature;
  test::must_fail(Sampler(options).sample(row, {}, 17), ErrorCode::kNonFinite, {"position 17"});
}

TEST_CASE("log probabilities are over the unfiltered row", "[sampler]") {
  const Logprobs result = logprobs_of(kLogits, 3, 2);
  REQUIRE(result.chosen.id == 3);
  REQUIRE(close(result.chosen.logprob, -1 - log_sum_exp(kLogits)));
  REQUIRE(result.top.size() == 2);
  REQUIRE(result.top[0].id == 0);
  REQUIRE(result.top[1].id == 1);
  REQUIRE(close(result.top[1].logprob, 1 - log_sum_exp(kLogits)));
}

}  // namespace llm
