#include "engine/generation/generate.h"

#include "engine/generation/logits_hash.h"
#include "engine/generation/stop_matcher.h"
#include "tests/engine/fake_session.h"
#include "tests/tokenizer/vocab_builder.h"

namespace llm::test {
namespace {

/// Predicts the bytes of `reply` one after another after a prompt of `n_prompt` tokens, then EOS.
FakeSession::Predictor spelling(std::string reply, std::size_t n_prompt) {
  return [reply, n_prompt](const std::vector<TokenId>& text) {
    const std::size_t at = text.size() - n_prompt;
    return at < reply.size() ? byte_id(reply[at]) : kEos;
  };
}

/// The texts of the events.
GenerateSink collect(std::vector<std::string>& texts) {
  return [&texts](const GenerateEvent& event) -> Status {
    texts.emplace_back(event.text);
    return Ok{};
  };
}

std::string joined(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, ""));
}

const Ids kPrompt = {kBos, 100, 101};

}  // namespace

TEST_CASE("a text ends at EOS, which is no part of it", "[generate]") {
  FakeSession session(VocabBuilder().build(), spelling("story", 3));
  std::vector<std::string> texts;
  const auto result = require_ok(generate(session, kPrompt, greedy(), collect(texts)));
  REQUIRE(result.text == "story");
  REQUIRE(texts == std::vector<std::string>{"s", "t", "o", "r", "y"});
  REQUIRE(result.ids.size() == 5);
  REQUIRE(result.stop_reason == StopReason::kEos);
  REQUIRE(result.prefill_tokens == 3);
  REQUIRE(result.token_seconds.size() == 5);
  REQUIRE(session.calls == std::vector<std::size_t>{3, 1, 1, 1, 1, 1});
}

TEST_CASE("ignore_eos never draws a token that ends the text", "[generate]") {
  FakeSession session(VocabBuilder().build(), spelling("", 3));
  GenerateOptions options = greedy();
  options.ignore_eos = true;
  options.max_tokens = 4;
  const auto result = generate(session, kPrompt, options);
  REQUIRE(result->ids.size() == 4);
  REQUIRE(std::ranges::count(result->ids, kEos) == 0);
}

TEST_CASE("min_tokens are drawn before a token that ends the text", "[generate]") {
  FakeSession session(VocabBuilder().build(), spelling("", 3));
  GenerateOptions options = greedy();
  options.sampler.min_tokens = 3;
  REQUIRE(generate(session, kPrompt, options)->ids.size() == 3);
}

TEST_CASE("a repetition that DRY counts begins after a token that breaks it", "[generate]") {
  GenerateOptions options = greedy();
  options.sampler.dry_multiplier = 1e6F;
  options.max_tokens = 1;
  for (const char middle : {'y', ':', '\n'}) {
    const Ids prompt = {kBos,         byte_id('x'), byte_id(middle),
                        byte_id('z'), byte_id('x'), byte_id(middle)};
    FakeSession session(VocabBuilder().build(), spelling("z", prompt.size()));
    CAPTURE(middle);
    REQUIRE((generate(session, prompt, options)->text == "z") == (middle != 'y'));
  }
}

TEST_CASE("a text ends where it must, and shows what only might have been a stop string",
          "[generate]") {
  struct Row {
    std::string reply;
    std::string stop;
    std::optional<std::size_t> max_tokens;
    std::string text;
    StopReason reason;
  };
  for (const Row& row : std::vector<Row>{
           {"story", "zz", 0, "", StopReason::kLength},  // only evaluates the prompt
           {"story", "zz", 1, "s", StopReason::kLength},
           {"story", "zz", 3, "sto", StopReason::kLength},
           {"story", "ry", 5, "sto", StopReason::kStopString},  // with its last token
           {"story", "ry", 6, "sto", StopReason::kStopString},
           {"one\nUser: two", "\nUser:", {}, "one", StopReason::kStopString},
           {"one\nUse", "\nUser:", {}, "one\nUse", StopReason::kEos},
           {"one\nUs\xF0", "\nUser:", {}, "one\nUs\xEF\xBF\xBD", StopReason::kEos},
           {"ab#cd", "zz", {}, "ab", StopReason::kEos},  // a token of stop_tokens
       }) {
    CAPTURE(row.reply, row.stop);
    FakeSession session(VocabBuilder().build(), spelling(row.reply, 3));
    GenerateOptions options = greedy(row.max_tokens);
    options.stop = {row.stop};
    options.stop_tokens = {byte_id('#')};
    std::vector<std::string> texts;
    const auto result = require_ok(generate(session, kPrompt, options, collect(texts)));
    CHECK(result.text == row.text);
    CHECK(joined(texts) == row.text);
    CHECK(result.stop_reason == row.reason);
    // A last token that nothing follows is not evaluated.
    const bool all = row.reason == StopReason::kEos || result.ids.empty();
    CHECK(session.text.size() + (all ? 0 : 1) == 3 + result.ids.size());
  }
}

TEST_CASE("characters are never split, and a broken one is shown at the end", "[generate]") {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8C\x88";
  FakeSession session(VocabBuilder().build(), spelling(text + "\xF0\x9F", 3));
  std::vector<std::string> texts;
  const auto result = generate(session, kPrompt, greedy(), collect(texts));
  const std::vector<std::string> expected = {"a", "", "\xC3\xA9",        "", "", "\xE2\x82\xAC", "",
                                             "",  "", "\xF0\x9F\x8C\x88"};
  REQUIRE(std::vector<std::string>(texts.begin(), texts.begin() + 10) == expected);
  REQUIRE(joined(texts).starts_with(text + "\xEF\xBF\xBD"));  // U+FFFD
  REQUIRE(result->text == joined(texts));
}

TEST_CASE("the prompt is evaluated in batches", "[generate]") {
  FakeSession session(VocabBuilder().build(), spelling("", 10), 100, 4);
  std::vector<std::size_t> done;
  GenerateOptions options = greedy();
  options.progress = [&](std::string_view, std::size_t n, std::size_t) { done.push_back(n); };
  REQUIRE(generate(session, Ids(10, 50), options).ok());
  REQUIRE(session.calls == std::vector<std::size_t>{4, 4, 2});
  REQUIRE(done == std::vector<std::size_t>{4, 8, 10});
}

TEST_CASE("a prompt longer than the context is a usage error with both numbers", "[generate]") {
  FakeSession session(VocabBuilder().build(), spelling("", 3), 8);
  must_fail(generate(session, Ids(9, 50), greedy()), ErrorCode::kUsage,
            {"found 9 tokens, need at most 8"});
  REQUIRE(session.calls.empty());
}

TEST_CASE("a prompt without a token is a usage error", "[generate]") {
  FakeSession session(VocabBuilder().build(), spelling("", 0));
  must_fail(generate(session, Ids{}, greedy()), ErrorCode::kUsage);
}

TEST_CASE("a full context ends the text", "[generate]") {
  FakeSession session(VocabBuilder().build(), spelling("abcdefgh", 3), 5);
  const auto result = generate(session, kPrompt, greedy());
  REQUIRE(result->stop_reason == StopReason::kContextFull);
  REQUIRE(result->text == "abc");  // the last one needs no position of its own
  REQUIRE(session.position() == 5);
}

TEST_CASE("a context shift keeps BOS and the newer half", "[generate]") {
  FakeSession session(VocabBuilder().build(), counting, 7);
  GenerateOptions options = greedy();
  options.context_shift = true;
  options.max_tokens = 7;
  const auto result = generate(session, Ids{kBos, 100, 101}, options);
  REQUIRE(result->ids == Ids{102, 103, 104, 105, 106, 107, 108});
  // 1 100..106 did not fit; of 100..106 the older four went.
  REQUIRE(session.text == Ids{kBos, 104, 105, 106, 107});
}

TEST_CASE("a draw after a context shift never repeats an earlier one's number", "[generate]") {
  // Every logit equal: the tokens drawn are the random numbers themselves.
  const auto constant = [](const std::vector<TokenId>&) { return 200; };
  FakeSession session(VocabBuilder().build(), constant, 8);
  GenerateOptions options = greedy(40);
  options.sampler = {.temperature = 1e6F, .seed = 5};
  options.ignore_eos = true;
  options.context_shift = true;
  const auto result = generate(session, Ids{kBos}, options);
  REQUIRE(result->ids.size() == 40);
  FakeSession wide(VocabBuilder().build(), constant, 100);
  REQUIRE(generate(wide, Ids{kBos}, options)->ids == result->ids);
}

TEST_CASE("an interrupt ends prefill and decode within one evaluation", "[generate]") {
  FakeSession session(VocabBuilder().build(), spelling("abcdefgh", 10), 100, 4);
  GenerateOptions options = greedy();
  std::size_t allowed = GENERATE(std::size_t{1}, std::size_t{5});
  options.interrupted = [&] { return session.calls.size() >= allowed; };
  const auto result = generate(session, Ids(10, 50), options);
  REQUIRE(result->stop_reason == StopReason::kInterrupted);
  REQUIRE(session.calls.size() == allowed);
  REQUIRE(result->text == (allowed == 1 ? "" : "ab"));
}

TEST_CASE("an error of the sink ends the text", "[generate]") {
  FakeSession session(VocabBuilder().build(), spelling("abc", 3));
  must_fail(generate(session, kPrompt, greedy(),
                     [](const GenerateEvent&) -> Status {
                       return Error{.code = ErrorCode::kIo, .field = "", .message = "closed"};
                     }),
            ErrorCode::kIo);
  REQUIRE(session.calls.size() == 1);
}

TEST_CASE("on_logits sees each position once, the last token's too", "[generate]") {
  const auto [only_drawn, first] = GENERATE(std::pair(false, 0U), std::pair(true, 9U));
  FakeSession session(VocabBuilder().build(), spelling("abcdef", 10), 100, 4);
  GenerateOptions options = greedy(3);
  options.only_drawn = only_drawn;
  std::vector<float> rows;
  options.on_logits = [&](std::span<const float> more) {
    rows.insert(rows.end(), more.begin(), more.end());
  };
  const auto result = generate(session, Ids(10, 50), options);
  const std::size_t n_vocab = session.n_vocab();
  REQUIRE(result->text == "abc");
  REQUIRE(rows.size() == (13 - first) * n_vocab);
  for (std::size_t row = 0; row < 13 - first; ++row) {
    REQUIRE(rows[row * n_vocab] == static_cast<float>(first + row) * 1e-3F);
  }
}

TEST_CASE("the hashes of logits are those of all rows and of those drawn from", "[generate]") {
  const auto [first_drawn, first] = GENERATE(table<std::size_t, std::size_t>({{3, 0}, {3, 3}}));
  constexpr std::size_t kVocab = 4;
  std::vector<float> rows(5 * kVocab);
  std::iota(rows.begin(), rows.end(), 0.0F);
  const auto sha256 = [](std::span<const float> some) { return sha256_hex(std::as_bytes(some)); };
  LogitsHash hash(kVocab, first_drawn, first);
  const auto given = std::span(rows).subspan(first * kVocab);
  hash.add(given.first(kVocab));
  hash.add(given.subspan(kVocab));
  CHECK(hash.all() == sha256(given));
  CHECK(hash.drawn() == sha256(std::span(rows).subspan(first_drawn * kVocab)));
}

TEST_CASE("log probabilities come with each token when wanted", "[generate]") {
  FakeSession session(VocabBuilder().build(), spelling("ab", 3));
  GenerateOptions options = greedy();
  options.logprobs = 2;
  std::size_t events = 0;
  const auto result = generate(session, kPrompt, options, [&](const GenerateEvent& event) {
    REQUIRE(event.logprobs != nullptr);
    REQUIRE(event.logprobs->chosen.id == *event.id);
    ++events;
    return Status(Ok{});
  });
  REQUIRE(events == 2);
  REQUIRE(result->logprobs.size() == 2);
  REQUIRE(result->logprobs[1].top.size() == 2);
  REQUIRE(result->logprobs[1].top[0].id == byte_id('b'));
}

TEST_CASE("a second run goes on after the first and evaluates only what is new", "[generate]") {
  FakeSession session(VocabBuilder().build(), counting);
  Generator generator(session);
  GenerateOptions options = greedy(2);
  REQUIRE(generator.run(Ids{kBos, 50}, options)->ids == Ids{51, 52});
  REQUIRE(generator.run(Ids{70}, options)->ids == Ids{71, 72});
  REQUIRE(session.calls == std::vector<std::size_t>{2, 1, 2, 1});  // 52 came with 70
  REQUIRE(session.text == Ids{kBos, 50, 51, 52, 70, 71});
}

TEST_CASE("stop strings are found wherever the pieces end", "[generate][stop]") {
  const std::string text = "aab aaab stop";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    StopMatcher matcher({"aaab", "", "zzz"});
    std::string shown;
    for (std::size_t at = 0; at < text.size() && !matcher.matched(); at += size) {
      shown += matcher.push(text.substr(at, size));
    }
    REQUIRE(matcher.matched());
    REQUIRE(shown == "aab ");
    REQUIRE(matcher.flush().empty());
  }
}

TEST_CASE("of several stop strings the first in the text counts", "[generate][stop]") {
  StopMatcher matcher({"cd", "bcx", "b c"});
  std::string shown = matcher.push("ab");
  REQUIRE(shown == "a");
  shown += matcher.push("cd");
  REQUIRE(matcher.matched());
  REQUIRE(shown == "ab");
}

}  // namespace llm::test
