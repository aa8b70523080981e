#include "engine/sampler/sampler.h"
#include "tests/support/test.h"
#include "validate/text/quality/sweep.h"

namespace llm {
namespace {

using Ids = std::vector<TokenId>;

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
}  // namespace llm
