#include "engine/generation/conversation.h"
#include "tests/engine/fake_session.h"
#include "tests/support/test.h"
#include "tests/tokenizer/vocab_builder.h"

namespace llm {

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

}  // namespace llm
