#include "engine/generate/conversation.h"
#include "tests/engine/fake_session.h"
#include "tests/support/test.h"
#include "tests/tokenizer/vocab_builder.h"

namespace llm {

TEST_CASE("the model sees a chat as its format renders the whole", "[generate][chat]") {
  // Each reply thinks and ends with a line break, so that most rules for earlier replies have work.
  constexpr std::string_view kReply = "~<think>\nx\n</think>\n\nok\n";
  const auto thinks = [&](const std::vector<TokenId>& text) {
    std::size_t n = 0;  // how much of the reply stands at the end
    for (std::size_t i = 1; i <= std::min(kReply.size(), text.size()); ++i) {
      const bool is_end = std::ranges::equal(
          kReply.substr(0, i), std::span(text).last(i),
          [](char c, TokenId id) { return kByte0 + static_cast<unsigned char>(c) == id; });
      if (is_end) n = i;
    }
    return n == kReply.size() ? TokenId{2} : kByte0 + static_cast<unsigned char>(kReply[n]);
  };
  VocabBuilder builder;
  builder.spec.add_space_prefix = false;
  const GenerateOptions options = greedy();
  for (const ChatFormat format : all_chat_formats()) {
    CAPTURE(chat_format_name(format));
    FakeSession session(builder.build(), thinks, 100000, 100000);
    Conversation conversation(session, format);
    conversation.set_system("Kind.");
    std::vector<ChatMessage> messages = {{ChatMessage::Role::kSystem, "Kind."}};
    for (const char* message : {"one", "two", "three"}) {
      messages.push_back({ChatMessage::Role::kUser, message});
      REQUIRE(conversation.ask(message).ok());
      const auto ids =
          test::require_ok(encode_chat(session.tokenizer(), format_chat(format, messages), true));
      REQUIRE(*conversation.text() == ids);
      const auto result = test::require_ok(conversation.reply(options));
      REQUIRE(session.text == *conversation.text());
      messages.push_back({ChatMessage::Role::kAssistant, result.text});
    }
  }
}

}  // namespace llm
