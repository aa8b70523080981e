// Built-in templates and ids against jinja2 rendering the models' own templates
// (tests/golden/README.md).

#include "base/sha256.h"
#include "engine/generation/chat_style.h"
#include "tests/support/json.h"
#include "tests/tokenizer/vocab_files.h"

namespace llm {
namespace {

const OrderedJson& golden() {
  static const OrderedJson content =
      test::parse_ordered_json(test::read_file(LLM_SOURCE_DIR "/tests/golden/chat/golden.json"));
  return content;
}

/// The template's text: the golden's own, or a file that is not ours to distribute.
std::optional<std::string> template_text(const OrderedJson& entry) {
  if (entry.contains("template")) return entry["template"].get<std::string>();
  const auto path = test_data("templates/" + entry["file"].get<std::string>());
  if (!path) return std::nullopt;
  return test::read_file(*path);
}

}  // namespace

TEST_CASE("built-in templates have the texts that jinja2 renders of the models' own",
          "[chat][golden]") {
  for (const std::string_view name : ChatStyle::built_in()) {
    CAPTURE(name);
    const ChatTemplate jinja =
        test::require_ok(ChatTemplate::parse(std::string(ChatStyle::built_in_text(name))));
    const auto entry = std::ranges::find_if(
        golden()["templates"], [&](const OrderedJson& one) { return one["format"] == name; });
    REQUIRE(entry != golden()["templates"].end());
    REQUIRE((*entry)["texts"].size() == 12);
    for (std::size_t i = 0; i < 12; ++i) {
      CAPTURE(i);
      const auto parts = test::require_ok(jinja.render({.messages = golden()["conversations"][i]}));
      CHECK(chat_text(parts) == (*entry)["texts"][i].get<std::string>());
    }
  }
}

TEST_CASE("conversations have the ids of tokenizers, markers that users type as text",
          "[chat][golden]") {
  std::size_t n = 0;
  for (const OrderedJson& entry : golden()["templates"]) {
    if (!entry.contains("ids")) continue;
    const auto path = test_data(entry["vocabulary"].get<std::string>());
    const auto text = template_text(entry);
    if (!path || !text) continue;
    const Tokenizer tokenizer = tokenizer_of(*path);
    CAPTURE(entry["file"]);
    CHECK(sha256_hex(std::as_bytes(std::span(*text))) == entry["sha256"]);
    const auto style = test::require_ok(ChatStyle::create("", *text, tokenizer));
    ++n;
    for (std::size_t i = 0; i < 12; ++i) {
      CAPTURE(i);
      const auto parts = test::require_ok(style->render(golden()["conversations"][i]));
      const auto ids = test::require_ok(style->encode(parts, true));
      CHECK(ids == entry["ids"][i].get<std::vector<TokenId>>());
    }
  }
  CHECK((n == 4 || std::getenv("LLM_TEST_DATA") == nullptr));
}

}  // namespace llm
