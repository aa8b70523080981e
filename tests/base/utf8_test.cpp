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

}  // namespace llm
