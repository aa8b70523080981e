// What is proposed.

#include "engine/generation/draft_proposer.h"
#include "engine/generation/ngram_proposer.h"
#include "tests/engine/fake_session.h"
#include "tests/tokenizer/vocab_builder.h"

namespace llm {
namespace {

Proposal propose(NgramProposer& proposer, const Ids& text, std::size_t length) {
  return proposer.propose({.text = text, .draw = {}, .interrupted = {}},
                          [length](std::size_t) { return length; });
}

/// The token with the largest logit, unless it is 90, which ends a text.
std::optional<TokenId> draw(std::span<const float> logits, std::span<const TokenId>) {
  const auto id = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
  return id == 90 ? std::nullopt : std::optional(id);
}

FakeSession* counting_draft(std::unique_ptr<DraftProposer>& proposer, std::size_t context = 100) {
  auto session = std::make_unique<FakeSession>(VocabBuilder().build(), counting, context, 3);
  FakeSession* seen = session.get();
  proposer = std::make_unique<DraftProposer>(std::move(session));
  return seen;
}

Ids drafted(DraftProposer& proposer, const Ids& text, std::size_t length) {
  return proposer
      .propose({.text = text, .draw = draw, .interrupted = {}},
               [length](std::size_t) { return length; })
      .tokens;
}

}  // namespace

TEST_CASE("ngram proposes what followed the longest, then the latest equal tokens",
          "[speculation]") {
  NgramProposer proposer;
  CHECK(propose(proposer, {1, 2, 3}, 4).tokens.empty());
  // 5 6 stood twice; after 4 5 6 came 7.
  CHECK(propose(proposer, {4, 5, 6, 7, 8, 5, 6, 9, 4, 5, 6}, 3).tokens == Ids{7, 8, 5});
  CHECK(propose(proposer, {4, 5, 6, 7, 8, 5, 6, 9, 3, 5, 6}, 3).tokens == Ids{9, 3, 5});
  CHECK(propose(proposer, {4, 5, 6, 7, 8, 5, 6, 9, 3, 5, 6}, 0).tokens.empty());
  // One equal token is none.
  CHECK(propose(proposer, {4, 5, 6, 7, 6}, 3).tokens.empty());
}

TEST_CASE("ngram goes on with its own proposal after the end of the text", "[speculation]") {
  NgramProposer proposer;
  CHECK(propose(proposer, {1, 2, 3, 1, 2, 3}, 7).tokens == Ids{1, 2, 3, 1, 2, 3, 1});
  CHECK(propose(proposer, {9, 9, 9}, 3).tokens == Ids{9, 9, 9});
}

TEST_CASE("ngram follows a text that grows, shrinks or is another", "[speculation]") {
  std::mt19937 random(1);
  NgramProposer proposer;
  Ids text;
  for (int i = 0; i < 400; ++i) {
    if (random() % 16 == 0) text.resize(text.size() / 2);
    if (random() % 40 == 0) text.assign(20, 3);
    text.push_back(static_cast<TokenId>(random() % 4));
    NgramProposer fresh;
    const Proposal a = propose(proposer, text, 5);
    const Proposal b = propose(fresh, text, 5);
    REQUIRE(a.tokens == b.tokens);
    REQUIRE(a.grade == b.grade);
  }
}

TEST_CASE("the grade rises with the number of equal tokens", "[speculation]") {
  CHECK(NgramProposer::grade_of(2) == 0);
  for (std::size_t n = 2; n < 40; ++n) {
    CHECK(NgramProposer::grade_of(n + 1) >= NgramProposer::grade_of(n));
    CHECK(NgramProposer::grade_of(n) < Proposer::kGrades);
  }
  CHECK(NgramProposer::grade_of(40) == Proposer::kGrades - 1);
  NgramProposer proposer;
  Ids text(50, 1);
  CHECK(propose(proposer, text, 1).grade == Proposer::kGrades - 1);
}

TEST_CASE("a draft follows the text and proposes what it would draw", "[speculation]") {
  std::unique_ptr<DraftProposer> proposer;
  FakeSession* session = counting_draft(proposer);
  CHECK(drafted(*proposer, {1, 2, 3, 10}, 3) == Ids{11, 12, 13});
  CHECK(session->text == Ids{1, 2, 3, 10, 11, 12});
  CHECK(session->calls == std::vector<std::size_t>{3, 1, 1, 1});
  // Two were right; the third was not.
  CHECK(drafted(*proposer, {1, 2, 3, 10, 11, 12, 40}, 2) == Ids{41, 42});
  CHECK(session->text == Ids{1, 2, 3, 10, 11, 12, 40, 41});
  // A shorter text that it has seen whole, then another.
  CHECK(drafted(*proposer, {1, 2, 3}, 1) == Ids{4});
  CHECK(drafted(*proposer, {7}, 1) == Ids{8});
  CHECK(session->text == Ids{7});
}

TEST_CASE("a draft reads a long text first and proposes after the next token", "[speculation]") {
  std::unique_ptr<DraftProposer> proposer;
  FakeSession* session = counting_draft(proposer);
  Ids text(40, 5);
  CHECK(drafted(*proposer, text, 2).empty());
  CHECK(session->text == text);
  text.push_back(8);
  CHECK(drafted(*proposer, text, 2) == Ids{9, 10});
  text.resize(text.size() + 4, 6);
  CHECK(drafted(*proposer, text, 1) == Ids{7});
}

TEST_CASE("a draft ends where the text would end, or its context does", "[speculation]") {
  std::unique_ptr<DraftProposer> proposer;
  counting_draft(proposer);
  CHECK(drafted(*proposer, {1, 87}, 5) == Ids{88, 89});
  CHECK(drafted(*proposer, {1, 89}, 5).empty());
  counting_draft(proposer, 6);
  CHECK(drafted(*proposer, {1, 2, 3, 4}, 5) == Ids{5, 6, 7});
  CHECK(drafted(*proposer, {1, 2, 3, 4, 5, 6}, 5) == Ids{7});
  CHECK(drafted(*proposer, {1, 2, 3, 4, 5, 6, 7}, 5).empty());
  CHECK(drafted(*proposer, {1, 2, 3}, 0).empty());
}

TEST_CASE("a draft that fails or is interrupted proposes what it has", "[speculation]") {
  std::unique_ptr<DraftProposer> proposer;
  FakeSession* session = counting_draft(proposer);
  session->refused = 13;
  CHECK(drafted(*proposer, {1, 10}, 5) == Ids{11, 12, 13});
  CHECK(drafted(*proposer, {1, 10, 13, 20}, 5).empty());
  session->refused = -1;
  CHECK(drafted(*proposer, {1, 10, 13, 20}, 2) == Ids{21, 22});
  const Ids text(30, 5);
  int asked = 0;
  const auto stopped =
      proposer->propose({.text = text, .draw = draw, .interrupted = [&] { return ++asked == 3; }},
                        [](std::size_t) { return std::size_t{4}; });
  CHECK(stopped.tokens.empty());
  CHECK(session->text.size() == 6);
  CHECK(drafted(*proposer, text, 1).empty());
  CHECK(session->text == text);
  CHECK(drafted(*proposer, text, 1) == Ids{6});
}

TEST_CASE("a draft of another vocabulary is refused by number or by token", "[speculation]") {
  VocabBuilder builder;
  builder.add("one");
  const Tokenizer model = builder.build();
  REQUIRE(check_same_vocabulary(model, model).ok());
  builder.add("two");
  const Error larger =
      test::must_fail(check_same_vocabulary(builder.build(), model), ErrorCode::kUsage);
  CHECK(larger.message == "found 261 tokens in the draft, need 260, as the model has");
  VocabBuilder other;
  other.add("eins");
  const Error spelled = test::must_fail(check_same_vocabulary(other.build(), model));
  CHECK(spelled.message ==
        "found token 259 as \"eins\" of kind 1 in the draft, need \"one\" of kind 1, as the model "
        "has it");
  VocabBuilder kind;
  kind.add("one", 0, TokenKind::kControl);
  CHECK_FALSE(check_same_vocabulary(kind.build(), model).ok());
}

}  // namespace llm
