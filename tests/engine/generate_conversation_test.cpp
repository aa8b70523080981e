#include "engine/generation/conversation.h"
#include "tests/engine/fake_session.h"
#include "tests/tokenizer/vocab_builder.h"

namespace llm::test {
namespace {

/// Answers "ok" to everything.
TokenId says_ok(const std::vector<TokenId>& text) {
  if (text.back() == byte_id('\n') || text.back() == byte_id(']')) return byte_id('o');
  return text.back() == byte_id('o') ? byte_id('k') : kEos;
}

/// Never ends: a, b, c, ...
TokenId says_on_and_on(const std::vector<TokenId>& text) {
  const TokenId next = text.back() + 1;
  return next > byte_id('a') && next <= byte_id('z') ? next : byte_id('a');
}

/// A built-in template; its markers are text where the vocabulary lacks them.
std::shared_ptr<const ChatStyle> built_in(std::string_view name, const Session& session) {
  return require_ok(ChatStyle::create(
      std::string(name), std::string(ChatStyle::built_in_text(name)), session.tokenizer()));
}

/// Asks and answers.
GenerateResult say(Conversation& conversation, const std::string& message,
                   const GenerateOptions& options = greedy()) {
  require_ok(conversation.ask(message, options.context_shift));
  return require_ok(conversation.reply(options));
}

std::vector<TokenId> text_of(const Conversation& conversation) {
  return require_ok(conversation.text());
}

/// The text of a new conversation that had these messages and the answer "ok" to each.
std::vector<TokenId> fresh_text(const std::string& system, const std::vector<std::string>& messages,
                                std::string_view name) {
  FakeSession session(tokenizer_with({}), says_ok, 100000, 100000);
  Conversation conversation(session, built_in(name, session));
  conversation.set_system(system);
  for (const std::string& message : messages) say(conversation, message);
  return text_of(conversation);
}

}  // namespace

TEST_CASE("a chat that is full is one that never had its oldest turns", "[generate][chat]") {
  const std::string_view name = GENERATE("zephyr", "llama2", "mistral-nemo", "chatml", "gemma");
  CAPTURE(name);
  FakeSession session(tokenizer_with({}), says_ok, 250, 64);
  Conversation conversation(session, built_in(name, session));
  conversation.set_system("Kind.");
  std::vector<std::string> messages;
  std::size_t forgotten = 0;
  for (int i = 0; i < 30; ++i) {
    messages.push_back("message " + std::to_string(i));
    const auto room = require_ok(conversation.ask(messages.back()));
    forgotten += room.turns;
    const auto result = conversation.reply(greedy());
    REQUIRE(result->text == "ok");
    REQUIRE(result->stop_reason == StopReason::kEos);
    const std::vector<std::string> kept(messages.begin() + static_cast<std::ptrdiff_t>(forgotten),
                                        messages.end());
    REQUIRE(conversation.turns().size() == kept.size());
    REQUIRE(text_of(conversation) == fresh_text("Kind.", kept, name));
    REQUIRE(session.text == text_of(conversation));
  }
  REQUIRE(forgotten > 20);
  REQUIRE(conversation.forgotten_turns() == forgotten);
}

TEST_CASE("a long conversation is shortened in one step, not a turn at a time",
          "[generate][chat]") {
  constexpr std::size_t kTurns = 4000;
  FakeSession session(tokenizer_with({}), says_ok, 300, 300);
  Conversation conversation(session, built_in("zephyr", session));
  Conversation::State state;
  for (std::size_t i = 0; i < kTurns; ++i) {
    state.turns.push_back({.message = "message " + std::to_string(i),
                           .reply = "ok",
                           .reply_ids = {byte_id('o'), byte_id('k')}});
  }
  REQUIRE(conversation.restore(std::move(state)).ok());
  session.n_asked_for_tokenizer = 0;
  const auto room = require_ok(conversation.ask("another"));
  REQUIRE(room.turns + conversation.turns().size() == kTurns + 1);
  // Once a turn for the whole, and what is kept a few times.
  REQUIRE(session.n_asked_for_tokenizer < kTurns + 200);
  const auto ids = text_of(conversation);
  REQUIRE(ids.size() <= 225);
  REQUIRE(ids.size() > 150);
}

TEST_CASE("older turns are computed anew only when some were forgotten", "[generate][chat]") {
  FakeSession session(tokenizer_with({}), says_ok, 300, 300);
  Conversation conversation(session, built_in("zephyr", session));
  std::size_t recomputed = 0;
  for (int i = 0; i < 20; ++i) {
    session.calls.clear();
    const auto room = conversation.ask("message " + std::to_string(i));
    REQUIRE(conversation.reply(greedy()).ok());
    const bool whole = session.calls.front() > 40;
    REQUIRE(whole == (room->turns > 0));
    recomputed += whole;
  }
  REQUIRE(recomputed > 1);
  REQUIRE(recomputed < 10);  // a quarter of the context is made free at once
}

TEST_CASE("a message that does not fit is refused and leaves the chat as it was",
          "[generate][chat]") {
  FakeSession session(tokenizer_with({}), says_ok, 200);
  Conversation conversation(session, built_in("zephyr", session));
  conversation.set_system("Kind.");
  say(conversation, "one");
  say(conversation, "two");
  const auto before = text_of(conversation);
  const Error refused =
      must_fail(conversation.ask(std::string(200, 'x')), ErrorCode::kUsage, {"--context-shift"});
  REQUIRE(refused.message ==
          "found 244 tokens with the system message, need at most 200 (the context)");
  REQUIRE(text_of(conversation) == before);
  REQUIRE(conversation.forgotten_turns() == 0);
  REQUIRE(say(conversation, "three").text == "ok");
  REQUIRE(conversation.turns().size() == 3);
}

TEST_CASE("a message may lose its front; the system message stays", "[generate][chat]") {
  FakeSession session(tokenizer_with({}), says_ok, 200);
  Conversation conversation(session, built_in("zephyr", session));
  conversation.set_system("Kind.");
  std::string message;
  for (int i = 0; i < 200; ++i) message += "\xC3\xA9";  // no character may be cut
  message += "end";
  const auto room = require_ok(conversation.ask(message, true));
  const auto text = text_of(conversation);
  REQUIRE(text.size() <= 200);
  REQUIRE(text.size() > 190);
  REQUIRE(room.tokens == 44 + 403 - text.size());
  const std::string& kept = conversation.turns().back().message;
  REQUIRE(message.ends_with(kept));
  REQUIRE(kept.starts_with("\xC3\xA9"));
  const std::string shown = tokenizer_with({}).decode(text);
  REQUIRE(shown.starts_with("<|system|>\nKind.\n<|user|>\n\xC3\xA9"));
  REQUIRE(conversation.reply(greedy())->text == "ok");

  // Nothing is left to crop: the system message alone is too long.
  conversation.clear();
  conversation.set_system(std::string(300, 's'));
  const Error refused = must_fail(conversation.ask("hi", true));
  REQUIRE(refused.hint.find("--context-shift") == std::string::npos);
}

TEST_CASE("a reply that fills the context goes on at the cost of older turns", "[generate][chat]") {
  FakeSession session(tokenizer_with({}), says_ok, 200);
  Conversation conversation(session, built_in("zephyr", session));
  say(conversation, "one");
  say(conversation, "two");
  FakeSession talker(tokenizer_with({}), says_on_and_on, 200);
  Conversation longer(talker, built_in("zephyr", talker));
  REQUIRE(longer.restore({.system = "Be", .turns = conversation.turns(), .next_draw = 7}).ok());
  const auto result = say(longer, "go");
  REQUIRE(longer.forgotten_turns() == 2);
  REQUIRE(result.stop_reason == StopReason::kContextFull);
  REQUIRE(result.text.starts_with("abcdefghijklmnopqrstuvwxyzabc"));
  // As long as if the two turns had never been: the last token needs no position.
  FakeSession alone(tokenizer_with({}), says_on_and_on, 200);
  Conversation fresh(alone, built_in("zephyr", alone));
  fresh.set_system("Be");
  REQUIRE(say(fresh, "go").text == result.text);
  REQUIRE(text_of(fresh) == text_of(longer));
  // Draws go on counting over what is gone.
  REQUIRE(longer.next_draw() > text_of(longer).size() + 60);
  // The next message finds room again.
  GenerateOptions few = greedy(3);
  REQUIRE(say(longer, "and", few).stop_reason == StopReason::kLength);
  REQUIRE(longer.turns().size() == 1);
}

TEST_CASE("with context shift a reply goes on when its turn is alone", "[generate][chat]") {
  FakeSession session(tokenizer_with({}), says_on_and_on, 120);
  Conversation conversation(session, built_in("zephyr", session));
  conversation.set_system("Kind.");
  GenerateOptions options = greedy(500);
  options.context_shift = true;
  const auto result = say(conversation, "go", options);
  REQUIRE(result.ids.size() == 500);
  REQUIRE(result.text.size() == 500);
  const auto text = text_of(conversation);
  REQUIRE(text.size() <= 121);
  REQUIRE(tokenizer_with({}).decode(text).starts_with(
      "<|system|>\nKind.\n<|user|>\ngo\n<|assistant|>\n"));
  REQUIRE(result.text.ends_with(
      tokenizer_with({}).decode(conversation.turns().back().reply_ids, {.continues_text = true})));
}

TEST_CASE("a stop string is no part of the conversation", "[generate][chat]") {
  const std::string reply = "fine<|user|>\n";
  FakeSession session(tokenizer_with({}), [&](const std::vector<TokenId>& text) {
    const auto at = std::find(text.rbegin(), text.rend(), byte_id('>')).base();
    const auto n = static_cast<std::size_t>(text.end() - at);
    return n == 0 ? byte_id('\n') : byte_id(reply[n - 1]);
  });
  Conversation conversation(session, built_in("zephyr", session));
  const auto result = say(conversation, "hi");
  REQUIRE(result.stop_reason == StopReason::kStopString);
  REQUIRE(result.text == "fine");
  REQUIRE(tokenizer_with({}).decode(text_of(conversation)) == "<|user|>\nhi\n<|assistant|>\nfine");
}

TEST_CASE("a message can be answered again, with other draws", "[generate][chat]") {
  FakeSession session(
      tokenizer_with({}), [](const std::vector<TokenId>&) { return 200; }, 1000);
  Conversation conversation(session, built_in("zephyr", session));
  REQUIRE(!conversation.ask_again().ok());
  GenerateOptions options = greedy(20);
  options.sampler.temperature = 1e6F;
  options.ignore_eos = true;
  const auto first = say(conversation, "hi", options);
  const auto before = text_of(conversation).size();
  session.calls.clear();
  REQUIRE(conversation.ask_again().ok());
  const auto second = conversation.reply(options);
  REQUIRE(second->ids.size() == 20);
  REQUIRE(second->ids != first.ids);
  REQUIRE(session.calls.front() == 1);  // the message is still evaluated, but for its last token
  REQUIRE(conversation.turns().size() == 1);
  REQUIRE(text_of(conversation).size() == before);
}

TEST_CASE("a message above the template's limit is an error, and the chat is as before",
          "[generate][chat]") {
  FakeSession session(tokenizer_with({}), says_ok, 200);
  Conversation conversation(session, built_in("zephyr", session));
  say(conversation, "one");
  const Error refused = must_fail(conversation.ask(std::string(Tokenizer::kMaxTextBytes + 1, 'x')),
                                  ErrorCode::kResource);
  REQUIRE(refused.message == "line 1: found a text of more than 16 MiB, need less");
  REQUIRE(conversation.turns().size() == 1);
  REQUIRE(say(conversation, "two").text == "ok");
}

TEST_CASE("what a template refuses is told in its words, and the chat is as before",
          "[generate][chat]") {
  FakeSession session(tokenizer_with({}), says_ok, 1000);
  const std::string jinja =
      "{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('not that') }}{% endif "
      "%}"
      "{{ m.content }}\n{% endfor %}";
  Conversation conversation(session,
                            require_ok(ChatStyle::create("x", jinja, session.tokenizer())));
  say(conversation, "one");
  const Error refused = must_fail(conversation.ask("no"), ErrorCode::kUsage);
  REQUIRE(refused.message == "line 1: the template says: not that");
  REQUIRE(conversation.turns().size() == 1);
  REQUIRE(say(conversation, "two").text == "ok");
}

TEST_CASE("the system message may change in the middle of a chat", "[generate][chat]") {
  FakeSession session(tokenizer_with({}), says_ok, 1000);
  Conversation conversation(session, built_in("zephyr", session));
  say(conversation, "one");
  conversation.set_system("Be brief.");
  say(conversation, "two");
  REQUIRE(session.text == fresh_text("Be brief.", {"one", "two"}, "zephyr"));
  conversation.clear();
  say(conversation, "three");
  REQUIRE(session.text == fresh_text("Be brief.", {"three"}, "zephyr"));
}

TEST_CASE("a replaced text keeps what it shares with the text before", "[generate]") {
  FakeSession session(tokenizer_with({}), says_on_and_on);
  Generator generator(session);
  GenerateOptions options = greedy(1);
  REQUIRE(generator.run(Ids{1, 50, 51, 52}, options).ok());
  generator.set_text(Ids{1, 50, 60, 61, 62});
  REQUIRE(session.text == Ids{1, 50});
  REQUIRE(generator.run({}, options).ok());
  REQUIRE(session.text == Ids{1, 50, 60, 61, 62});
  REQUIRE(session.calls == std::vector<std::size_t>{4, 3});
  generator.set_text(Ids{1, 50, 60});
  REQUIRE(session.text == Ids{1, 50});  // the last token's logits are needed
  REQUIRE(generator.next_draw() == 6);  // 61, 62 and what was drawn count
}

TEST_CASE("a prompt longer than the context loses its front, but for BOS, if it may",
          "[generate]") {
  FakeSession session(tokenizer_with({}), says_on_and_on, 8);
  GenerateOptions options = greedy(1);
  options.context_shift = true;
  const auto result =
      require_ok(generate(session, Ids{1, 50, 51, 52, 53, 54, 55, 56, 57, 58}, options));
  REQUIRE(result.cropped == 2);
  REQUIRE(session.text == Ids{1, 52, 53, 54, 55, 56, 57, 58});
  FakeSession without_bos(tokenizer_with({}), says_on_and_on, 8);
  REQUIRE(generate(without_bos, Ids(10, 50), options)->cropped == 2);
  REQUIRE(without_bos.text == Ids(8, 50));
  FakeSession fits(tokenizer_with({}), says_on_and_on, 8);
  REQUIRE(generate(fits, Ids(8, 50), options)->cropped == 0);
}

TEST_CASE("the model sees a chat as its template renders the whole", "[generate][chat]") {
  // Each reply thinks and ends with a line break, so that most rules for earlier replies have work.
  constexpr std::string_view kReply = "~<think>\nx\n</think>\n\nok\n";
  const auto thinks = [&](const std::vector<TokenId>& text) {
    std::size_t n = 0;  // how much of the reply stands at the end
    for (std::size_t i = 1; i <= std::min(kReply.size(), text.size()); ++i) {
      const bool is_end = std::ranges::equal(kReply.substr(0, i), std::span(text).last(i),
                                             [](char c, TokenId id) { return byte_id(c) == id; });
      if (is_end) n = i;
    }
    return n == kReply.size() ? kEos : byte_id(kReply[n]);
  };
  const GenerateOptions options = greedy();
  // Templates that change earlier replies, beside the built-in ones.
  std::vector<std::string> templates = {
      "{% for m in messages %}{{ m.role }}: {{ m.content.split('</think>')[-1].strip() }}\n"
      "{% endfor %}assistant: ",
      "{% for m in messages %}<{{ m.role }}>{{ m.content | upper if loop.first else m.content }}"
      "{% endfor %}<assistant>"};
  for (const std::string_view name : ChatStyle::built_in()) {
    templates.emplace_back(ChatStyle::built_in_text(name));
  }
  for (const std::string& jinja : templates) {
    CAPTURE(jinja);
    FakeSession session(tokenizer_with({}), thinks, 100000, 100000);
    const auto style = test::require_ok(ChatStyle::create("x", jinja, session.tokenizer()));
    Conversation conversation(session, style);
    conversation.set_system("Kind.");
    OrderedJson messages = OrderedJson::array({chat_message("system", "Kind.")});
    for (const char* message : {"one", "two", "three"}) {
      messages.push_back(chat_message("user", message));
      REQUIRE(conversation.ask(message).ok());
      const auto parts = test::require_ok(style->render(messages));
      const auto ids = test::require_ok(style->encode(parts, true));
      REQUIRE(*conversation.text() == ids);
      const auto result = test::require_ok(conversation.reply(options));
      REQUIRE(session.text == *conversation.text());
      messages.push_back(chat_message("assistant", result.text));
    }
  }
}

}  // namespace llm::test
