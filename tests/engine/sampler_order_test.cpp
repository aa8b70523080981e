// What is drawn without a sort is what the sorted row gives (docs/sampling.md; naive_sampler.h has
// the plain loops): bits of sums, tokens of draws, over rows of every kind and all options.

#include "base/cpu_features.h"
#include "engine/sampler/descending_weights.h"
#include "engine/sampler/sampler.h"
#include "quant/contract/arithmetic.h"
#include "quant/kernels/kernel_table.h"
#include "tests/engine/naive_sampler.h"
#include "tests/support/test.h"
#include "validate/self/sampler_check.h"

namespace llm {
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

SamplerOptions drawn_options(std::size_t n, std::mt19937& random) {
  const auto of = [&random](std::initializer_list<float> values) {
    return values.begin()[random() % values.size()];
  };
  const auto uniform = [&random] { return static_cast<float>(random() % 1000) / 1000; };
  SamplerOptions options{.temperature =
                             of({1, 1, 1, 1, 0.8F, 0.3F, 1.7F, 5, 100, 1e-10F, 1e-38F, 1e30F, 0})};
  const std::size_t ks[] = {0, 0, 0, 0, 1, 2, 40, n - 1, n, n + 5, 1 + random() % n};
  options.top_k = ks[random() % std::size(ks)];
  options.top_p = of({1, 1, 1, 0, 0.05F, 0.5F, 0.9F, 0.95F, 0.999F, 0x1.fffffep-1F, uniform()});
  options.min_p = of({0, 0, 0, 0.05F, 0.2F, 1e-6F, 1, uniform()});
  options.repeat_penalty = of({1, 1, 1, 1.1F, 0.7F, 2});
  options.repeat_last_n = static_cast<std::int64_t>(of({-1, 0, 3, 64}));
  options.presence_penalty = of({0, 0, 0, 1.5F, -0.3F});
  options.frequency_penalty = of({0, 0, 0, 0.7F, -2});
  options.dry_multiplier = of({0, 0, 0, 0.8F, 5});
  options.dry_base = of({1.75F, 1, 3});
  options.dry_allowed_length = static_cast<std::size_t>(of({0, 1, 2, 4}));
  options.dry_penalty_last_n = static_cast<std::int64_t>(of({-1, -1, 0, 1, 20}));
  options.typical_p = of({1, 1, 1, 0, 0.2F, 0.9F, uniform()});
  options.xtc_probability = of({0, 0, 0.5F, 1});
  options.xtc_threshold = of({0.1F, 0.02F, 0, 0.3F, 0.5F, 0.51F});
  options.dynatemp_range = of({0, 0, 0, 0.5F, 2});
  options.dynatemp_exponent = of({1, 0, 0.3F, 2.5F});
  options.seed = random();
  options.order = random() % 2 == 0 ? SamplerOrder::kHf : SamplerOrder::kLlamaCpp;
  return options;
}

std::vector<TokenId> drawn_past(std::size_t n, std::mt19937& random) {
  std::vector<TokenId> past(random() % 80);
  const std::size_t n_different = random() % 2 == 0 ? n : std::min<std::size_t>(n, 3);
  for (TokenId& id : past) id = static_cast<TokenId>(random() % n_different);
  return past;
}

/// Draws `n_draws` tokens from one row by the plain loops, which sort it once, and by the sampler.
/// @return how many differ
std::size_t differing_draws(std::span<const float> row, std::span<const TokenId> past,
                            const SamplerOptions& options, std::size_t n_draws) {
  const std::size_t n_generated = n_draws % (past.size() + 5);  // some are forgotten
  const std::size_t n_unbroken = n_draws % 7;
  // Where XTC does not strike, and where it does.
  std::array<std::vector<Candidate>, 2> both;
  std::array<std::vector<double>, 2> masses_of_both;
  for (const std::size_t excludes : {std::size_t{0}, std::size_t{1}}) {
    both[excludes] = naive_distribution(options, row, past, n_generated, n_unbroken, excludes == 1);
    auto& masses = masses_of_both[excludes];
    for (const Candidate& c : both[excludes])
      masses.push_back(static_cast<double>(c.probability) + (masses.empty() ? 0 : masses.back()));
  }
  std::size_t differing = 0;
  for (std::size_t i = 0; i < n_draws; ++i) {
    const std::uint64_t sequence = i % 3;
    const double uniform = uniform_draw(options.seed, sequence, i);
    const bool excludes = uniform_draw(options.seed, sequence ^ (std::uint64_t{1} << 61), i) <
                          static_cast<double>(options.xtc_probability);
    const auto& candidates = both[excludes ? 1 : 0];
    const auto& masses = masses_of_both[excludes ? 1 : 0];
    const auto at = std::ranges::upper_bound(masses, uniform) - masses.begin();
    const auto expected =
        at == std::ssize(masses) ? candidates[0].id : candidates[static_cast<std::size_t>(at)].id;
    const auto drawn = Sampler(options, sequence, n_generated, n_unbroken).sample(row, past, i);
    differing += drawn.ok() && *drawn == expected ? 0 : 1;
  }
  return differing;
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

/// Distributions whose tokens or bits are not those of the plain loops.
std::size_t differing_distributions(const SamplerRow& row, std::span<const SamplerOptions> all) {
  return static_cast<std::size_t>(std::ranges::count_if(all, [&](const SamplerOptions& options) {
    const std::size_t n_generated = row.past.size() / 2;
    const auto actual = Sampler(options, 0, n_generated).distribution(row.logits, row.past, 0);
    const bool excludes = uniform_draw(options.seed, std::uint64_t{1} << 61, 0) <
                          static_cast<double>(options.xtc_probability);
    return !actual.ok() ||
           !std::ranges::equal(
               *actual,
               naive_distribution(options, row.logits, row.past, n_generated, SIZE_MAX, excludes),
               [](const Candidate& a, const Candidate& b) {
                 return a.id == b.id && same_bits(a.probability, b.probability);
               });
  }));
}

/// Every k, every value at which top-p or min-p takes in a token with both neighbouring floats, and
/// 400 drawn options.
std::vector<SamplerOptions> telling_options(const SamplerRow& row, std::mt19937& random) {
  std::vector<SamplerOptions> options;
  for (std::size_t k = 0; k <= row.logits.size() + 2; ++k) options.push_back({.top_k = k});
  float mass = 0;
  const auto all = naive_distribution({}, row.logits, row.past);
  const float largest = row.logits[static_cast<std::size_t>(all[0].id)];
  for (const Candidate& c : all) {
    const float distance = row.logits[static_cast<std::size_t>(c.id)] - largest;
    for (const float to : {-1.0F, 0.0F, 2.0F}) {
      const auto beside = [to](float x) { return to == 0 ? x : std::nextafter(x, to); };
      options.push_back({.top_p = std::clamp(beside(mass + c.probability), 0.0F, 1.0F)});
      options.push_back({.min_p = std::clamp(beside(contract::exp(distance)), 0.0F, 1.0F)});
    }
    mass += c.probability;
  }
  for (int i = 0; i < 400; ++i) options.push_back(drawn_options(row.logits.size(), random));
  return options;
}

}  // namespace

TEST_CASE("distributions are those of the sorted row in every bit", "[sampler]") {
  std::mt19937 random(8);
  for (const SamplerRow& row : generated_sampler_rows()) {
    CAPTURE(row.name);
    CHECK(differing_distributions(row, telling_options(row, random)) == 0);
  }
}

TEST_CASE("draws are those of the sorted row: short rows", "[sampler]") {
  REQUIRE(differing_of_rows(effort<std::size_t>(3000, 100), 12, 100, 1) == 0);
  REQUIRE(differing_of_rows(effort<std::size_t>(2000, 50), 300, 100, 2) == 0);
}

TEST_CASE("draws are those of the sorted row: rows of which not all is sorted", "[sampler]") {
  REQUIRE(differing_of_rows(effort<std::size_t>(20, 4), 12000, 60, 3) == 0);
  REQUIRE(differing_of_rows(effort<std::size_t>(30, 4), 40000, 60, 4) == 0);
  REQUIRE(differing_of_rows(effort<std::size_t>(3, 1), kQwenVocabulary, 60, 5) == 0);
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
