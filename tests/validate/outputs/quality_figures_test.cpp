#include "tests/support/test.h"
#include "validate/outputs/quality/sweep.h"
#include "validate/outputs/quality/text_windows.h"
#include "validate/reference/diff/likelihood.h"

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;

Ids numbers(TokenId n) {
  Ids ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), 10);
  return ids;
}

TEST_CASE("windows over a whole text score every token once, from BOS", "[quality]") {
  const auto windows = require_ok(token_windows(numbers(7), 1, {.window = 3}));
  REQUIRE(windows.size() == 3);
  CHECK(windows[0].inputs == Ids{1, 10, 11});
  CHECK(windows[0].targets == Ids{10, 11, 12});
  CHECK(windows[1].inputs == Ids{1, 13, 14});
  CHECK(windows[1].targets == Ids{13, 14, 15});
  CHECK(windows[2].inputs == Ids{1});
  CHECK(windows[2].targets == Ids{16});
  CHECK(count_targets(windows) == 7);
}

TEST_CASE("without BOS the first token of a text is context only", "[quality]") {
  const auto windows = require_ok(token_windows(numbers(5), std::nullopt, {.window = 3}));
  REQUIRE(windows.size() == 2);
  CHECK(windows[0].inputs == Ids{10, 11, 12});
  CHECK(windows[0].targets == Ids{11, 12, 13});
  CHECK(windows[1].inputs == Ids{13});
  CHECK(windows[1].targets == Ids{14});
}

TEST_CASE("drawn windows have full length, stay inside and follow the seed", "[quality]") {
  const auto bos = GENERATE(std::optional<TokenId>(1), std::optional<TokenId>());
  const Ids text = numbers(12);
  const WindowOptions options{.window = 4, .sample = 200, .seed = 3};
  const auto windows = require_ok(token_windows(text, bos, options));
  REQUIRE(windows.size() == 200);
  std::set<TokenId> starts;
  for (const TextWindow& window : windows) {
    REQUIRE(window.inputs.size() == 4);
    REQUIRE(window.targets.size() == 4);
    CHECK(window.targets.back() < 22);
    CHECK(window.targets[0] + 3 == window.targets[3]);
    starts.insert(window.targets[0]);
  }
  CHECK(starts.size() == (bos ? 9 : 8));  // every possible start
  const auto again = token_windows(text, bos, options);
  const auto other = token_windows(text, bos, {.window = 4, .sample = 200, .seed = 4});
  bool same = true;
  for (std::size_t i = 0; i < 200; ++i) {
    CHECK((*again)[i].targets == windows[i].targets);
    same = same && (*other)[i].targets == windows[i].targets;
  }
  CHECK_FALSE(same);
}

TEST_CASE("a text too short for a window is refused with both numbers", "[quality]") {
  CHECK_FALSE(token_windows({}, 1, {.window = 3}).ok());
  CHECK(token_windows(numbers(1), 1, {.window = 3}).ok());
  CHECK_FALSE(token_windows(numbers(1), std::nullopt, {.window = 3}).ok());
  const Error refused =
      must_fail(token_windows(numbers(3), 1, {.window = 4, .sample = 2}), ErrorCode::kUsage);
  CHECK(refused.message == "found 3 tokens, need at least 4");
}

// ----
// What is said of a text in numbers: of its logits, and of its tokens.

using Ids = std::vector<TokenId>;

TEST_CASE("the likelihood of a token is its softmax", "[quality]") {
  // Probabilities 1/2, 1/4, 1/8, 1/8, shifted: the shift must not matter.
  const float shift = GENERATE(0.0F, 80.0F, -3000.0F);
  std::vector<float> logits;
  for (const double p : {0.5, 0.25, 0.125, 0.125})
    logits.push_back(static_cast<float>(std::log(p)) + shift);
  const double tolerance = std::abs(static_cast<double>(shift)) * 1e-7 + 1e-6;
  CHECK(std::abs(negative_log_likelihood(logits, 0) - std::log(2)) < tolerance);
  CHECK(std::abs(negative_log_likelihood(logits, 3) - std::log(8)) < tolerance);
}

TEST_CASE("the top token of a tie is the lower one", "[quality]") {
  CHECK(top_token(std::vector<float>{1, 3, 3, 2}) == 1);
}

TEST_CASE("a mean has the standard error of its blocks' means", "[quality]") {
  std::vector<double> scores;
  for (const double block : {1.0, 3.0, 5.0, 7.0}) scores.insert(scores.end(), kScoreBlock, block);
  scores.push_back(100);  // counts for the mean only
  const MeanEstimate estimate = estimate_mean(scores);
  CHECK(estimate.count == 4 * kScoreBlock + 1);
  CHECK(estimate.mean == Approx((4.0 * 4 * kScoreBlock + 100) / (4 * kScoreBlock + 1)));
  CHECK(estimate.standard_error == Approx(std::sqrt(20.0 / 3 / 4)));
  CHECK(estimate_mean({}).count == 0);
}

TEST_CASE("divergence from the reference, by hand", "[quality]") {
  const std::vector<float> p = {std::log(0.5F), std::log(0.5F)};
  const std::vector<float> q = {std::log(0.8F), std::log(0.2F)};
  // KL(p || q), not KL(q || p) = 0.1927.
  CHECK(kl_divergence(q, p) == Approx(0.5 * std::log(0.5 / 0.8) + 0.5 * std::log(0.5 / 0.2)));
  CHECK(kl_divergence(p, p) == 0);

  DivergenceCollector collector;
  collector.add(q, p, 1);   // p falls from 0.5 to 0.2; both top tokens are 0
  collector.add(p, p, -1);  // no target
  const std::vector<float> r = {std::log(0.2F), std::log(0.8F)};
  collector.add(r, p, 0);  // another top token; 0.5 to 0.2
  const Divergence d = collector.finish();
  CHECK(d.positions == 3);
  CHECK(d.top1_agreement == Approx(2.0 / 3));
  CHECK(d.delta_p_rms == Approx(0.3).epsilon(1e-6));
  CHECK(d.kl_mean == Approx(2 * 0.2231436 / 3).epsilon(1e-6));
  CHECK(d.kl_median == Approx(0.2231436).epsilon(1e-6));
  CHECK(d.kl_max == Approx(0.2231436).epsilon(1e-6));
}

TEST_CASE("a logit of NaN gives no figure that looks good", "[quality]") {
  const std::vector<float> p = {0, 1};
  const std::vector<float> bad = {0, std::nanf("")};
  CHECK_FALSE(negative_log_likelihood(bad, 0) < 100);
  CHECK_FALSE(kl_divergence(bad, p) < 100);
  CHECK_FALSE(kl_divergence(p, bad) < 100);
}

TEST_CASE("perplexity is the exponential of the mean", "[quality]") {
  CHECK(perplexity(std::vector<double>{std::log(2), std::log(8)}) == Approx(4));
  CHECK(perplexity({}) == 1);
}

TEST_CASE("repetition counts within windows of 20", "[quality]") {
  CHECK(repetition({}) == 0);
  CHECK(repetition(Ids{4}) == 0);
  CHECK(repetition(Ids{4, 4, 4, 5}) == Approx(0.5));  // one short window: 1 - 2/4
  CHECK(repetition(Ids(20, 7)) == Approx(0.95));
  Ids far(40);
  std::iota(far.begin(), far.end(), 0);
  far[39] = 0;  // 39 tokens apart: in no window together
  CHECK(repetition(far) == Approx(0).margin(1e-12));
  far[1] = 0;  // neighbours in the first window alone, of 21
  CHECK(repetition(far) == Approx(0.05 / 21));
}

TEST_CASE("distinct n-grams are a share of all", "[quality]") {
  const Ids text = {1, 2, 1, 2, 1};
  CHECK(distinct(text, 1) == Approx(2.0 / 5));
  CHECK(distinct(text, 2) == Approx(2.0 / 4));
  CHECK(distinct(text, 3) == Approx(2.0 / 3));
  CHECK(distinct(text, 6) == 1);
  CHECK(distinct({}, 2) == 1);
}

TEST_CASE("consistency is the share of runs like the first", "[quality]") {
  CHECK(consistency(std::vector<Ids>{{1, 2}, {1, 2}, {1, 2}}) == 1);
  CHECK(consistency(std::vector<Ids>{{1, 2}, {1, 3}, {1, 2}}) == Approx(2.0 / 3));
  CHECK(consistency({}) == 1);
}

}  // namespace

}  // namespace llm::test
