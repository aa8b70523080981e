#include <cmath>
#include <numeric>
#include <vector>

#include "engine/sampler/sampler.h"
#include "tests/support/catch.h"
#include "validate/quality/signals.h"

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

TEST_CASE("the paired gate passes, fails or wants more text", "[quality]") {
  const double limit = 0.002;
  const auto noisy = [](double mean, double spread) {
    std::vector<double> d;
    for (std::size_t i = 0; i < 1600; ++i)
      d.push_back(mean + spread * (uniform_draw(5, 0, i) - 0.5));
    return d;
  };
  CHECK(paired_gate(noisy(0, 0.01), limit, 1).verdict == GateVerdict::kPass);
  CHECK(paired_gate(noisy(-0.1, 0.01), limit, 1).verdict == GateVerdict::kPass);  // better
  CHECK(paired_gate(noisy(0.01, 0.01), limit, 1).verdict == GateVerdict::kFail);
  CHECK(paired_gate(noisy(0.002, 1), limit, 1).verdict == GateVerdict::kInconclusive);
  CHECK(paired_gate(std::vector<double>(1600, 0.0), limit, 1).verdict == GateVerdict::kPass);
  CHECK(paired_gate({}, limit, 1).verdict == GateVerdict::kInconclusive);
  auto broken = noisy(0, 0.01);
  broken[700] = std::nan("");
  CHECK(paired_gate(broken, limit, 1).verdict == GateVerdict::kInconclusive);
  // The interval holds the mean, and is as wide as the sum of blocks says.
  const PairedGate gate = paired_gate(noisy(0.01, 1), limit, 1);
  const double standard_error = 1 / std::sqrt(12.0) / std::sqrt(1600.0);
  CHECK((gate.lower < gate.mean && gate.mean < gate.upper));
  CHECK(gate.upper - gate.lower == Approx(2 * 1.96 * standard_error).epsilon(0.3));
}

}  // namespace
}  // namespace llm
