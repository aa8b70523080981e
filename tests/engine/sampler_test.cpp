// What is drawn without a sort is what the sorted row gives (docs/sampling.md; naive_sampler.h has
// the plain loops): bits of sums, tokens of draws, over rows of every kind and all options.

#include "engine/sampler/sampler.h"

#include "base/cpu_features.h"
#include "engine/sampler/descending_weights.h"
#include "quant/kernels/kernel_table.h"
#include "quant/numerics/arithmetic.h"
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

namespace {

using test::effort;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::size_t kQwenVocabulary = 151936;

/// Rows of logits of many kinds; which one the generator says.
std::vector<float> drawn_row(std::size_t n, std::mt19937& random) {
  constexpr float kDeviations[] = {0, 1e-6F, 0.01F, 0.3F, 1, 1, 3, 8, 40};
  std::normal_distribution<float> normal(0, kDeviations[random() % std::size(kDeviations)]);
  const float offset = static_cast<float>(random() % 7) * 11 - 30;
  const float step = std::ldexp(1.0F, -static_cast<int>(random() % 8));
  const bool has_ties = random() % 3 == 0;
  const std::size_t masked = random() % 4 == 0 ? 2 + random() % 3 : 0;  // all but one of so many
  std::vector<float> row(n);
  for (float& logit : row) {
    logit = normal(random) + offset;
    if (has_ties) logit = std::round(logit / step) * step;
    if (masked != 0 && random() % masked != 0) logit = -kInf;
  }
  row[random() % n] = offset;  // some logit is finite
  if (random() % 6 == 0) row[random() % n] = offset + 15;
  if (random() % 8 == 0) row[random() % n] = 1e30F;
  if (random() % 8 == 0) row[random() % n] = -0.0F;
  return row;
}

std::vector<TokenId> drawn_past(std::size_t n, std::mt19937& random) {
  std::vector<TokenId> past(random() % 80);
  const std::size_t n_different = random() % 2 == 0 ? n : std::min<std::size_t>(n, 3);
  for (TokenId& id : past) id = static_cast<TokenId>(random() % n_different);
  return past;
}

/// Rows of n logits, with options and a past of their own each. @return draws that differ
std::size_t differing_of_rows(std::size_t n_rows, std::size_t most_logits, std::size_t n_draws,
                              unsigned seed) {
  std::mt19937 random(seed);
  std::size_t differing = 0;
  for (std::size_t r = 0; r < n_rows; ++r) {
    const std::size_t n = most_logits / 2 + 1 + random() % (most_logits - most_logits / 2);
    const std::vector<float> row = drawn_row(n, random);
    const auto past = drawn_past(n, random);
    differing += differing_draws(row, past, drawn_options(n, random), n_draws);
  }
  return differing;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

}  // namespace

TEST_CASE("filters, penalties and draws are those of the sorted row in every bit", "[sampler]") {
  CHECK(sampler_differences() == std::vector<std::string>());
}

TEST_CASE("draws are those of the sorted row: short rows", "[sampler]") {
  REQUIRE(differing_of_rows(effort<std::size_t>(1000, 100), 12, 100, 1) == 0);
  REQUIRE(differing_of_rows(effort<std::size_t>(700, 50), 300, 100, 2) == 0);
}

TEST_CASE("draws are those of the sorted row: rows of which not all is sorted", "[sampler]") {
  REQUIRE(differing_of_rows(effort<std::size_t>(10, 4), 12000, 60, 3) == 0);
  REQUIRE(differing_of_rows(effort<std::size_t>(10, 4), 40000, 60, 4) == 0);
  REQUIRE(differing_of_rows(effort<std::size_t>(2, 1), kQwenVocabulary, 60, 5) == 0);
}

TEST_CASE("the default request on flat logits of a large vocabulary", "[sampler]") {
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> row(kQwenVocabulary);
  for (float& logit : row) logit = normal(random);
  REQUIRE(differing_draws(row, {}, {.seed = 9}, effort<std::size_t>(200, 10)) == 0);
  REQUIRE(differing_draws(row, {}, {.top_p = 0.9F, .seed = 9}, effort<std::size_t>(100, 5)) == 0);
  std::ranges::fill(row, 2.5F);
  REQUIRE(differing_draws(row, {}, {.seed = 9}, effort<std::size_t>(40, 5)) == 0);
}

TEST_CASE("exp rises where its argument does, of every f32 that a distance may be", "[sampler]") {
  // Upwards from -104, whose exp is 0, to -0. A part of them with sanitizers.
  constexpr std::uint32_t kFirst = std::bit_cast<std::uint32_t>(-104.0F);
  constexpr std::uint32_t kEnd = std::bit_cast<std::uint32_t>(-0.0F);
  constexpr std::uint32_t kBlock = 4096;
  const KernelTable& kernels = *kernel_table(best_isa());
  std::vector<float> x(kBlock);
  std::vector<float> y(kBlock);
  float last = 0;
  bool rises = true;
  for (std::uint32_t first = kFirst; first > kEnd + kBlock; first -= kBlock * effort(1U, 512U)) {
    for (std::uint32_t i = 0; i < kBlock; ++i) x[i] = std::bit_cast<float>(first - i);
    kernels.exp_distances(x.data(), kBlock, 0.0F, 1.0F, y.data());
    for (std::uint32_t i = 1; i < kBlock; ++i) rises = rises & (y[i - 1] <= y[i]);
    rises = rises & (last <= y[0]);
    last = y[kBlock - 1];
  }
  // The rest are denormal, or nearly.
  REQUIRE(rises);
  REQUIRE(last == 1);
}

TEST_CASE("sums of leading weights have the bits of the sorted ones", "[sampler]") {
  std::mt19937 random(7);
  DescendingWeights descending;
  for (std::size_t r = 0; r < effort<std::size_t>(60, 6); ++r) {
    CAPTURE(r);
    const std::size_t n = r % 6 == 0 ? kQwenVocabulary : 1 + random() % 60000;
    std::vector<float> weights = drawn_row(n, random);
    const float largest = std::ranges::max(weights);
    for (float& w : weights) w = std::exp(w - largest);
    if (r % 4 == 1) {  // multiples of a power of two: sums that lie between two floats
      for (float& w : weights) w = std::round(w * 0x1p12F) * 0x1p-12F;
    }
    descending.set(weights);
    std::ranges::sort(weights, std::greater<>());
    REQUIRE(descending.all().size() == n);
    for (std::size_t i = 0; i < 20; ++i) {
      const std::size_t length = i == 0 ? n : 1 + random() % n;
      const auto expected = std::span(weights).first(length);
      const auto actual = descending.all().first(length);
      REQUIRE(same_bits(lane_sum(actual), lane_sum(expected)));
      REQUIRE(same_bits(std::accumulate(actual.begin(), actual.end(), 0.0F),
                        std::accumulate(expected.begin(), expected.end(), 0.0F)));
    }
  }
}

}  // namespace llm
