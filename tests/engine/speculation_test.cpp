// Text with speculation is text without it: tokens, logits, log probabilities, events, reasons and
// the session's state, whatever is proposed.

#include "engine/generation/speculation.h"

#include "engine/generation/draft_proposer.h"
#include "tests/engine/fake_session.h"
#include "tests/engine/speculation_support.h"
#include "tests/support/embedded_model.h"
#include "tests/support/test.h"
#include "tests/tokenizer/vocab_builder.h"

namespace llm::test {
namespace {

constexpr std::size_t kRandomTexts = effort(std::size_t{40}, std::size_t{6});

Speculation guessing(FunctionProposer::Function function) {
  return Speculation(std::make_unique<FunctionProposer>(std::move(function)));
}

}  // namespace

TEST_CASE("random proposals change nothing of a text but its passes", "[speculation]") {
  Counts counts;
  const auto options = ways();
  for (std::size_t seed = 0; seed < kRandomTexts; ++seed) {
    for (std::size_t way = 0; way < options.size(); ++way) {
      CAPTURE(seed, way);
      const auto predict = [seed](const std::vector<TokenId>& text) {
        const auto mixed = (text.size() * 31 + static_cast<std::size_t>(text.back()) * 7 + seed);
        return mixed % 37 == 0 ? kEos : static_cast<TokenId>(40 + mixed % 90);
      };
      GenerateOptions some = options[way];
      some.context_shift = seed % 3 == 0;
      const std::size_t context = seed % 3 == 1 ? 23 : seed % 3 == 0 ? 17 : 100;
      FakeSession plain_session(VocabBuilder().build(), predict, context, 9);
      const Ids prompt = {kBos, 100, static_cast<TokenId>(60 + seed)};
      const Seen plain = see(plain_session, {prompt}, some, nullptr);
      FakeSession session(VocabBuilder().build(), predict, context, 9);
      Speculation speculation = guessing(random_guess(
          seed, seed % 3 == 0 ? Ids{} : known(prompt, plain), session.n_vocab(), kEos));
      // Ids that no vocabulary has are refused by a real session.
      session.refused = static_cast<TokenId>(session.n_vocab());
      const Seen seen = see(session, {prompt}, some, &speculation, &counts);
      REQUIRE(seen == plain);
      REQUIRE(session.text == plain_session.text);
    }
  }
  REQUIRE(counts.accepted > 100);
  REQUIRE(counts.accepted < counts.proposed);
}

TEST_CASE("a right proposal saves passes and never draws one token too many", "[speculation]") {
  const std::size_t limit = GENERATE(std::size_t{1}, std::size_t{5}, std::size_t{9});
  FakeSession session(VocabBuilder().build(), counting);
  const GenerateOptions options = greedy(limit);
  Speculation speculation = guessing([](std::span<const TokenId> text) {
    Ids guess(8);
    for (std::size_t i = 0; i < 8; ++i) guess[i] = text.back() + static_cast<TokenId>(i + 1);
    return guess;
  });
  Counts counts;
  const Seen seen = see(session, {{kBos, 50, 60}}, options, &speculation, &counts);
  REQUIRE(seen.ids[0].size() == limit);
  REQUIRE(seen.ids[0].back() == static_cast<TokenId>(60 + limit));
  // The prompt, then all that is left at once; the last token needs no pass.
  REQUIRE(session.calls.size() == (limit == 1 ? 1U : 2U));
  REQUIRE(counts.passes == (limit == 1 ? 0U : 1U));
  REQUIRE(session.text.size() == 3 + limit - 1);
  if (limit > 1) REQUIRE(session.calls[1] == limit - 1);
}

TEST_CASE("a draft that would end the text goes no further", "[speculation]") {
  const auto ending = [](const std::vector<TokenId>& text) {
    return text.back() % 4 == 3 ? kEos : text.back() + 1;
  };
  FakeSession session(VocabBuilder().build(), counting);
  auto draft = std::make_unique<FakeSession>(VocabBuilder().build(), ending);
  FakeSession& seen_draft = *draft;
  Speculation speculation(std::make_unique<DraftProposer>(std::move(draft)), 6);
  Counts counts;
  see(session, {{kBos, 60}}, greedy(9), &speculation, &counts);
  // Behind 61 it proposes 62 and 63; 64 is drawn, after which it proposes 65, 66 and 67.
  REQUIRE(counts.proposed == 5);
  REQUIRE(counts.accepted == 5);
  REQUIRE(std::ranges::count(seen_draft.text, kEos) == 0);
  REQUIRE(seen_draft.calls == std::vector<std::size_t>{3, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("several prompts, a stop string and an interrupt leave the plain session",
          "[speculation]") {
  const auto predict = [](const std::vector<TokenId>& text) {
    return text.back() >= 100 ? 60 : text.back() + 1;
  };
  const auto guess = [](std::span<const TokenId> text) {
    return Ids{text.back() + 1, text.back() + 2, text.back() + 3, text.back() + 4};
  };
  for (int interrupt_at = 0; interrupt_at < 12; ++interrupt_at) {
    GenerateOptions options = greedy(20);
    options.stop = {"P"};
    const auto run = [&](FakeSession& session, Speculation* speculation) {
      int asked = 0;
      // Between the draws alone, which are as many with proposals as without.
      options.interrupted = [&] { return interrupt_at > 0 && ++asked == interrupt_at; };
      return see(session, {{kBos, 65}, {kBos, 70, 71}, {72}}, options, speculation);
    };
    FakeSession plain_session(VocabBuilder().build(), predict, 90);
    FakeSession session(VocabBuilder().build(), predict, 90);
    Speculation speculation = guessing(guess);
    const Seen plain = run(plain_session, nullptr);
    REQUIRE(run(session, &speculation) == plain);
    REQUIRE(session.text == plain_session.text);
  }
}

TEST_CASE("an error of the sink leaves the session where its text is", "[speculation]") {
  FakeSession session(VocabBuilder().build(), counting);
  GenerateOptions options = greedy();
  Speculation speculation = guessing([](std::span<const TokenId> text) {
    return Ids{text.back() + 1, text.back() + 2, text.back() + 3};
  });
  options.speculation = &speculation;
  int events = 0;
  const auto result =
      generate(session, Ids{kBos, 50}, options, [&](const GenerateEvent&) -> Status {
        if (++events < 3) return Ok{};
        return Error{.code = ErrorCode::kIo, .field = "", .message = "closed"};
      });
  REQUIRE_FALSE(result.ok());
  REQUIRE(session.text == Ids{kBos, 50, 51, 52});
}

// On models, --self and --equivalence of llmcheck have every proposer.
TEST_CASE("a draft draws with the text's own random numbers", "[speculation]") {
  const auto model = embedded(1, "fable-3m-f16.gguf");
  const auto draft = embedded();
  GenerateOptions options = greedy(60);
  options.sampler = kUsualSampling;
  options.sampler.seed = 3;
  options.ignore_eos = true;
  const auto prompt = model->tokenizer().encode("Once upon a time");
  const auto open = [](const std::shared_ptr<const Model>& of) {
    return require_ok(open_sequence(of, {.context = 256, .batch = 32}));
  };
  const auto session = open(model);
  Speculation speculation(std::make_unique<DraftProposer>(open(draft)), 4);
  Counts counts;
  see(*session, {prompt}, options, &speculation, &counts);
  // Two quantizations of one model, sampled apart, would agree on fewer than half of the tokens.
  CHECK(counts.accepted * 4 > counts.proposed * 3);
  CHECK(counts.passes < 25);
}

}  // namespace llm::test
