// A session that runs ahead shows what the one beneath would have shown.

#include "engine/generation/speculative_session.h"

#include "tests/engine/fake_session.h"
#include "tests/support/test.h"
#include "tests/tokenizer/vocab_builder.h"

namespace llm {
namespace {

FakeSession counting_session(std::size_t context = 100, std::size_t batch = 100) {
  return FakeSession(VocabBuilder().build(), counting, context, batch);
}

/// The row that a session without a proposal gives after these tokens.
std::vector<float> row_behind(const Ids& text) {
  FakeSession session = counting_session();
  const auto row = test::require_ok(session.evaluate(text, LogitRows::kLast));
  return {row.begin(), row.end()};
}

std::vector<float> step(SpeculativeSession& ahead, TokenId token) {
  const auto row = test::require_ok(ahead.evaluate({&token, 1}, LogitRows::kLast));
  return {row.begin(), row.end()};
}

/// A lookahead with proposals from a list, used up from its front, and what was noted.
struct Bench {
  explicit Bench(FakeSession& session) : ahead(session) {
    ahead.set_hooks(
        [this](std::size_t most) {
          asked.push_back(most);
          if (proposals.empty()) return Ids{};
          const Ids first = proposals.front();
          proposals.erase(proposals.begin());
          return first;
        },
        [this](const LookaheadPass& pass) { noted.push_back(pass); });
  }

  SpeculativeSession ahead;
  std::vector<Ids> proposals;
  std::vector<std::size_t> asked;
  std::vector<LookaheadPass> noted;
};

class NullProbe final : public ProbeSink {
  void begin_step(std::span<const int>, std::size_t) override {}
  void tap(int, std::string_view, std::span<float>, std::size_t, std::size_t) override {}
};

}  // namespace

TEST_CASE("rows of a proposal are those of its tokens fed one by one", "[speculation]") {
  FakeSession session = counting_session();
  Bench bench(session);
  bench.proposals = {{11, 12, 13}};
  REQUIRE(step(bench.ahead, 10) == row_behind({10}));
  REQUIRE(step(bench.ahead, 11) == row_behind({10, 11}));
  REQUIRE(bench.ahead.position() == 2);
  REQUIRE(step(bench.ahead, 12) == row_behind({10, 11, 12}));
  REQUIRE(session.calls == std::vector<std::size_t>{4});
  // The text goes on otherwise: what is left is forgotten.
  REQUIRE(step(bench.ahead, 50) == row_behind({10, 11, 12, 50}));
  REQUIRE(session.text == Ids{10, 11, 12, 50});
  REQUIRE(bench.noted.size() == 1);
  REQUIRE(bench.noted[0].proposed == 3);
  REQUIRE(bench.noted[0].accepted == 2);
  REQUIRE(bench.noted[0].refuted);
  REQUIRE(bench.ahead.passes() == 2);
  REQUIRE(bench.ahead.proposed() == 3);
  REQUIRE(bench.ahead.accepted() == 2);
}

TEST_CASE("settling leaves the session where its text is", "[speculation]") {
  const std::size_t n_used = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{3});
  FakeSession session = counting_session();
  Bench bench(session);
  bench.proposals = {{11, 12, 13}};
  Ids text = {10};
  step(bench.ahead, 10);
  for (std::size_t i = 0; i < n_used; ++i) {
    text.push_back(static_cast<TokenId>(11 + i));
    step(bench.ahead, text.back());
  }
  REQUIRE(bench.ahead.position() == text.size());
  REQUIRE(session.text.size() == 4);
  bench.ahead.settle();
  REQUIRE(session.text == text);
  REQUIRE_FALSE(bench.noted.at(0).refuted);
  step(bench.ahead, 99);
  REQUIRE(bench.asked.size() == 1);  // the hooks are forgotten
}

TEST_CASE("truncation and longer calls forget what was proposed first", "[speculation]") {
  FakeSession session = counting_session();
  Bench bench(session);
  bench.proposals = {{11, 12, 13}, {12, 13}};
  step(bench.ahead, 10);
  bench.ahead.truncate(0);
  REQUIRE(session.text.empty());
  step(bench.ahead, 11);
  REQUIRE(bench.ahead.evaluate(Ids{12, 13}, LogitRows::kLast).ok());
  REQUIRE(session.text == Ids{11, 12, 13});
  REQUIRE(bench.ahead.position() == 3);
  for (const LookaheadPass& pass : bench.noted) REQUIRE_FALSE(pass.refuted);
}

TEST_CASE("a proposal fits into batch and context, however long it is", "[speculation]") {
  const auto [context, batch, room] = GENERATE(
      table<std::size_t, std::size_t, std::size_t>({{100, 4, 3}, {5, 100, 4}, {100, 2, 1}}));
  FakeSession session = counting_session(context, batch);
  Bench bench(session);
  bench.proposals = {Ids(50, 11)};
  step(bench.ahead, 10);
  REQUIRE(bench.asked == std::vector<std::size_t>{room});
  REQUIRE(session.calls == std::vector<std::size_t>{room + 1});
}

TEST_CASE("nothing is proposed without room, without logits or under a probe", "[speculation]") {
  FakeSession narrow = counting_session(100, 1);
  Bench one(narrow);
  step(one.ahead, 10);
  REQUIRE(one.asked.empty());
  FakeSession full = counting_session(1);
  Bench last(full);
  step(last.ahead, 10);
  REQUIRE(last.asked.empty());
  FakeSession session = counting_session();
  Bench bench(session);
  const TokenId token = 10;
  REQUIRE(bench.ahead.evaluate({&token, 1}, LogitRows::kNone).ok());
  REQUIRE(bench.ahead.evaluate(Ids{11, 12}, LogitRows::kAll).ok());
  NullProbe probe;
  bench.ahead.set_probe(&probe);
  step(bench.ahead, 13);
  REQUIRE(bench.asked.empty());
  bench.ahead.set_probe(nullptr);
  step(bench.ahead, 14);
  REQUIRE(bench.asked.size() == 1);
}

TEST_CASE("a proposal that cannot be evaluated is dropped", "[speculation]") {
  FakeSession session = counting_session();
  session.refused = 66;
  Bench bench(session);
  bench.proposals = {{11, 66, 12}, {12}};
  REQUIRE(step(bench.ahead, 10) == row_behind({10}));
  REQUIRE(session.text == Ids{10});
  REQUIRE(step(bench.ahead, 11) == row_behind({10, 11}));
  REQUIRE(bench.noted.at(0).refuted);
  REQUIRE(bench.noted[0].seconds == 0);
  const TokenId bad = 66;
  test::must_fail(bench.ahead.evaluate({&bad, 1}, LogitRows::kLast), ErrorCode::kNonFinite);
  REQUIRE(bench.ahead.position() == 2);
}

}  // namespace llm
