#include "base/shown_text.h"
#include "base/utf8.h"
#include "tests/support/test.h"

namespace llm {
namespace {

using Kind = Utf8Head::Kind;

/// The encoding of any 21-bit value by the bit layout alone, right or wrong to use.
std::string encode_bits(std::uint32_t code, int size) {
  std::string text;
  static constexpr std::uint32_t kLead[] = {0x00, 0xC0, 0xE0, 0xF0};
  text += static_cast<char>(kLead[size - 1] | code >> (6 * (size - 1)));
  for (int i = size - 2; i >= 0; --i) {
    text += static_cast<char>(0x80 | (code >> (6 * i) & 0x3F));
  }
  return text;
}

int shortest(std::uint32_t code) {
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

}  // namespace

TEST_CASE("every code point is one character, in its shortest form only", "[tokenizer][utf8]") {
  std::size_t wrong = 0;
  for (std::uint32_t code = 0; code < 0x200000; ++code) {
    const bool scalar = code <= 0x10FFFF && !(code >= 0xD800 && code <= 0xDFFF);
    for (int size = shortest(code); size <= 4; ++size) {
      const std::string text = encode_bits(code, size);
      const Utf8Head head = utf8_head(text);
      const bool valid = scalar && size == shortest(code);
      const bool right = valid ? head.kind == Kind::kCharacter && head.size == text.size()
                               : head.kind == Kind::kInvalid && head.size == 1;
      wrong += !right;
      if (!valid) continue;
      std::string written;
      append_utf8(code, written);
      wrong += written != text || utf8_code_point(text) != code;
      for (std::size_t cut = 1; cut < text.size(); ++cut) {
        const Utf8Head part = utf8_head(text.substr(0, cut));
        wrong += part.kind != Kind::kIncomplete || part.size != cut;
      }
    }
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("a byte that begins no character stands alone", "[tokenizer][utf8]") {
  for (const std::string text : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xF5\x80\x80\x80", "\xFF",
                                 "\xE2\x28\xA1", "\xE2\x96\x28", "\xED\xA0", "\xF4\x90"}) {
    CAPTURE(text.size(), static_cast<int>(static_cast<unsigned char>(text[0])));
    REQUIRE(utf8_head(text).kind == Kind::kInvalid);
    REQUIRE(utf8_head(text).size == 1);
  }
}

TEST_CASE("invalid bytes become U+FFFD one by one", "[tokenizer][utf8]") {
  const std::string mark = "\xEF\xBF\xBD";
  std::string out;
  append_valid_utf8("a\xFF\xE2\x96z\xC3\xA9\xF0\x9F", out);
  REQUIRE(out == "a" + mark + mark + mark + "z\xC3\xA9" + mark + mark);
}

TEST_CASE("only a character cut off at the end is held back", "[tokenizer][utf8]") {
  CHECK(complete_utf8_size("") == 0);
  CHECK(complete_utf8_size("abc") == 3);
  CHECK(complete_utf8_size("ab\xC3") == 2);
  CHECK(complete_utf8_size("ab\xC3\xA9") == 4);
  CHECK(complete_utf8_size("\xF0\x9F\x98") == 0);
  CHECK(complete_utf8_size("\xF0\x9F\x98\x80") == 4);
  CHECK(complete_utf8_size("\xE2\x96\xE2\x96") == 2);
  CHECK(complete_utf8_size("\x96\x96\x96\x96") == 4);
  CHECK(complete_utf8_size("\xED\xA0") == 2);  // would be a surrogate
}

TEST_CASE("text without control characters is shown as it is", "[base][shown]") {
  for (const std::string text :
       {"", "blk.0.attn_q.weight", "C:\\models\\a b.gguf", "na\xC3\xAFve \xE2\x96\x81the",
        "\xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x98\x80", "\xD8\xA7\xD9\x84"}) {
    CHECK(shown(text) == text);
    CHECK(terminal_text(text) == text);
  }
}

TEST_CASE("what could steer a terminal or hide in a line becomes an escape", "[base][shown]") {
  CHECK(shown("a\x1b[31mred\x07") == "a\\x1b[31mred\\x07");
  CHECK(shown("two\nlines\tand\rmore\x7F") == "two\\nlines\\tand\\rmore\\x7f");
  CHECK(shown(std::string("nul\0", 4)) == "nul\\x00");
  CHECK(shown("\xC2\x9B"
              "2J") == "\\u009b2J");  // CSI as one C1 character
  CHECK(shown("\x9B"
              "2J\xFF\xC3") == "\\x9b2J\\xff\\xc3");  // and as a raw byte
  for (const char* hidden :
       {"\u061c", "\u200e", "\u200f", "\u202a", "\u202e", "\u2066", "\u2069", "\u200b", "\u200d",
        "\u2028", "\u2029", "\u2060", "\ufeff", "\u00ad"}) {
    CAPTURE(hidden);
    CHECK(shown(std::string("a") + hidden + "b").substr(0, 3) == "a\\u");
  }
  CHECK(shown("x\U000E0041") == "x\\U000e0041");
}

TEST_CASE("long text is cut between characters and names its size", "[base][shown]") {
  CHECK(shown(std::string(160, 'k')) == std::string(160, 'k'));
  CHECK(shown(std::string(65535, 'k')) == std::string(160, 'k') + "... (65535 bytes)");
  CHECK(shown("ab\u00e9", 3) == "ab... (4 bytes)");
  CHECK(shown(std::string(100, '\n'), 9) == "\\n\\n\\n\\n... (100 bytes)");
  CHECK(shown(std::string(9000, '\x1b')).size() < 200);
}

TEST_CASE("cleaning twice changes nothing", "[base][shown]") {
  const std::string once = shown("\x1b]0;title\x07 \"q\" \\ \u202e\xFF");
  CHECK(shown(once) == once);
  CHECK(is_valid_utf8(once));
}

TEST_CASE("quoted text escapes its quotes", "[base][shown]") {
  CHECK(quoted("a \"b\" \\ \x1b") == R"("a \"b\" \\ \x1b")");
  CHECK(quoted("caf\u00e9\xFF") == "\"caf\u00e9\\xff\"");
  CHECK(quoted("abcdef", 3) == "\"abc...\"");
}

TEST_CASE("generated text keeps what scripts need and loses what steers a terminal",
          "[base][shown]") {
  const std::string text = "line\n\ttab \u200d\u200c\u200e\u061c";
  CHECK(terminal_text(text) == text);
  CHECK(terminal_text("\x1b]52;c;\x07\r\b\xC2\x9B\xFF\u202e\u2067") ==
        "\\x1b]52;c;\\x07\\r\\x08\\u009b\\xff\\u202e\\u2067");
}

TEST_CASE("an error is one clean line, whatever the file says", "[base][shown]") {
  const Error error{.code = ErrorCode::kMalformed,
                    .field = "key " + std::string(65535, 'k'),
                    .message = "found \x1b[2J, need\nUINT32",
                    .file = "a\x1b]0;x\x07.gguf",
                    .hint = "rename \u202eit"};
  const std::string text = error.to_string();
  CAPTURE(text);
  CHECK(text.starts_with("a\\x1b]0;x\\x07.gguf: key kkk"));
  CHECK(text.ends_with("... (65539 bytes): found \\x1b[2J, need\\nUINT32; rename \\u202eit"));
  CHECK(text.size() < 300);
}

}  // namespace llm
