// Chat formats against jinja2 rendering the models' own templates (tests/golden/README.md).

#include "base/sha256.h"
#include "engine/generate/chat_template.h"
#include "tests/support/json.h"
#include "tests/support/test.h"
#include "tests/tokenizer/vocab_files.h"

#ifndef LLM_SOURCE_DIR
#error "the build defines LLM_SOURCE_DIR"
#endif

namespace llm {
namespace {

using Role = ChatMessage::Role;

const Json& golden() {
  static const Json content =
      test::parse_json(test::read_file(LLM_SOURCE_DIR "/tests/golden/chat/golden.json"));
  return content;
}

ChatFormat format_named(std::string_view name) {
  for (const ChatFormat format : all_chat_formats()) {
    if (chat_format_name(format) == name) return format;
  }
  FAIL("no format " << name);
  return {};
}

std::vector<ChatMessage> conversation(std::size_t at) {
  std::vector<ChatMessage> messages;
  for (const Json& message : golden()["conversations"][at]) {
    const std::string role = message["role"];
    messages.push_back({role == "system" ? Role::kSystem
                        : role == "user" ? Role::kUser
                                         : Role::kAssistant,
                        message["content"]});
  }
  return messages;
}

std::string joined(const std::vector<ChatPart>& parts) {
  std::string text;
  for (const ChatPart& part : parts) text += part.text;
  return text;
}

/// The template's text: the golden's own, or a file that is not ours to distribute.
std::optional<std::string> template_text(const Json& entry) {
  if (entry.contains("template")) return entry["template"].get<std::string>();
  const auto path = test_data("templates/" + entry["file"].get<std::string>());
  if (!path) return std::nullopt;
  std::ifstream file(*path, std::ios::binary);
  REQUIRE(file);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

TEST_CASE("conversations have the text that jinja2 renders", "[chat][golden]") {
  std::size_t n_templates = 0;
  for (const Json& entry : golden()["templates"]) {
    const ChatFormat format = format_named(entry["format"].get<std::string>());
    CAPTURE(chat_format_name(format), entry.value("file", "restated"));
    REQUIRE(entry["texts"].size() == 12);
    ++n_templates;
    for (std::size_t i = 0; i < 12; ++i) {
      CAPTURE(i);
      CHECK(joined(format_chat(format, conversation(i))) == entry["texts"][i].get<std::string>());
    }
  }
  REQUIRE(n_templates == 13);
}

TEST_CASE("every format has a golden", "[chat][golden]") {
  for (const ChatFormat format : all_chat_formats()) {
    CAPTURE(chat_format_name(format));
    std::size_t n = 0;
    for (const Json& entry : golden()["templates"])
      n += entry["format"] == chat_format_name(format);
    CHECK(n > 0);
  }
}

TEST_CASE("conversations have the ids of tokenizers, markers that users type as text",
          "[chat][golden]") {
  for (const Json& entry : golden()["templates"]) {
    if (!entry.contains("ids")) continue;
    const auto path = test_data(entry["vocabulary"].get<std::string>());
    if (!path) continue;
    const Tokenizer tokenizer = tokenizer_of(*path);
    CAPTURE(entry["file"]);
    for (std::size_t i = 0; i < 12; ++i) {
      CAPTURE(i);
      const auto parts =
          format_chat(format_named(entry["format"].get<std::string>()), conversation(i));
      const auto ids = test::require_ok(encode_chat(tokenizer, parts, true));
      CHECK(ids == entry["ids"][i].get<std::vector<TokenId>>());
    }
  }
}

TEST_CASE("the models' templates are recognized by their text", "[chat][golden]") {
  for (const Json& entry : golden()["templates"]) {
    const auto text = template_text(entry);
    if (!text) continue;
    CAPTURE(entry["format"], entry.value("file", "restated"));
    CHECK(sha256_hex(std::as_bytes(std::span(*text))) == entry["sha256"]);
    const auto format = recognize_chat_format(*text);
    REQUIRE(format.has_value());
    CHECK(chat_format_name(*format) == entry["format"]);
  }
}

}  // namespace llm
