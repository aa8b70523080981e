#include "base/utf8.h"
#include "tests/support/test.h"
#include "tests/tokenizer/vocab_builder.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace llm {
namespace {

const std::string kMark = "\xE2\x96\x81";         // U+2581
const std::string kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Pieces over a small alphabet, so that random texts merge, fall back to bytes and hit tags.
VocabBuilder mixed_vocabulary() {
  VocabBuilder builder;
  float score = 0;
  for (const char* text : {"\xE2\x96\x81", "a", "b", "ab", "\xC3\xA9", "b\xC3\xA9", "abb",
                           "\xF0\x9F\x98\x80", "a\xF0\x9F\x98\x80"}) {
    builder.add(text, score -= 1);
    builder.add(kMark + text, score);
  }
  builder.add("<t>", 0, TokenKind::kUserDefined);
  builder.add("  ", 0, TokenKind::kUserDefined);
  builder.add("ba", 0, TokenKind::kUnused);
  return builder;
}

/// Valid UTF-8 without U+2581, rich in spaces and in the pieces above.
std::string random_text(std::mt19937& random) {
  static const std::string kParts[] = {"a",         "b",
                                       "ab",        " ",
                                       "  ",        "\n",
                                       "<t>",       "\xC3\xA9",
                                       "</s>",      "\xF0\x9F\x98\x80",
                                       "z",         "<0x0",
                                       "\x7F",      "\xE4\xB8\xAD",
                                       kReplacement};
  std::string text;
  for (std::size_t n = random() % 24; n > 0; --n) {
    const std::size_t part = random() % (std::size(kParts) + 1);
    if (part < std::size(kParts)) {
      text += kParts[part];
    } else {
      text += static_cast<char>(random() % 128);
    }
  }
  return text;
}

std::string random_bytes(std::mt19937& random) {
  std::string text(random() % 24, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

bool is_valid(const std::string& text) {
  std::string copy;
  append_valid_utf8(text, copy);
  return copy == text;
}

}  // namespace

TEST_CASE("decode is the inverse of encode", "[tokenizer]") {
  VocabBuilder builder = mixed_vocabulary();
  builder.spec.add_space_prefix = GENERATE(true, false);
  const Tokenizer tokenizer = builder.build();
  std::mt19937 random(20240607);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_text(random);
    const Ids ids = tokenizer.encode(text, {.add_eos = true});
    CAPTURE(text, ids);
    REQUIRE(tokenizer.decode(ids) == text);
  }
}

TEST_CASE("any bytes come back when invalid ones are kept", "[tokenizer]") {
  const Tokenizer tokenizer = mixed_vocabulary().build();
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_bytes(random);
    const Ids ids = tokenizer.encode(text);
    CAPTURE(ids);
    REQUIRE((tokenizer.decode(ids, {.keep_invalid = true}) == text));
    std::string replaced;
    append_valid_utf8(text, replaced);
    REQUIRE((tokenizer.decode(ids) == replaced));
  }
}

TEST_CASE("streamed text never holds a part of a character", "[tokenizer]") {
  const Tokenizer tokenizer = mixed_vocabulary().build();
  std::mt19937 random(11);
  for (int i = 0; i < 2000; ++i) {
    Ids ids;
    for (std::size_t n = random() % 20; n > 0; --n) {
      ids.push_back(static_cast<TokenId>(random() % tokenizer.size()));
    }
    CAPTURE(ids);
    StreamDecoder decoder(tokenizer);
    StreamDecoder keeper(tokenizer, {.keep_invalid = true});
    std::string text;
    std::string kept;
    for (const TokenId id : ids) {
      const std::string step = decoder.push(id);
      REQUIRE(is_valid(step));
      text += step;
      kept += keeper.push(id);
    }
    REQUIRE((text + decoder.flush() == tokenizer.decode(ids)));
    REQUIRE((kept + keeper.flush() == tokenizer.decode(ids, {.keep_invalid = true})));
  }
}

TEST_CASE("byte tokens are given out when they complete a character", "[tokenizer]") {
  const Tokenizer tokenizer = mixed_vocabulary().build();
  const TokenId a = *tokenizer.find("a");
  StreamDecoder decoder(tokenizer);
  CHECK(decoder.push(a) == "a");
  CHECK(decoder.push(kByte0 + 0xF0).empty());
  CHECK(decoder.push(kByte0 + 0x9F).empty());
  CHECK(decoder.push(kByte0 + 0x98).empty());
  CHECK(decoder.push(1).empty());  // a control token adds nothing and breaks nothing
  CHECK(decoder.push(kByte0 + 0x81) == "\xF0\x9F\x98\x81");
  SECTION("what can no longer become a character is replaced at once") {
    CHECK(decoder.push(kByte0 + 0xE2).empty());
    CHECK(decoder.push(a) == kReplacement + "a");
    CHECK(decoder.push(kByte0 + 0xFF) == kReplacement);
    CHECK(decoder.push(kByte0 + 0xE2).empty());
    CHECK(decoder.push(kByte0 + 0xE2) == kReplacement);
    CHECK(decoder.flush() == kReplacement);
    CHECK(decoder.flush().empty());
  }
  SECTION("flush gives out the rest") {
    CHECK(decoder.push(kByte0 + 0xE2).empty());
    CHECK(decoder.push(kByte0 + 0x96).empty());
    CHECK(decoder.flush() == kReplacement + kReplacement);
    CHECK(decoder.push(a) == "a");
  }
}

TEST_CASE("one leading space is the dummy prefix, once and only at the start", "[tokenizer]") {
  VocabBuilder builder = mixed_vocabulary();
  const Tokenizer tokenizer = builder.build();
  const TokenId mark = *tokenizer.find(kMark);
  const TokenId mark_a = *tokenizer.find(kMark + "a");
  const TokenId a = *tokenizer.find("a");
  CHECK(tokenizer.decode(Ids{mark_a, mark_a}) == "a a");
  CHECK(tokenizer.decode(Ids{1, mark_a, mark_a}) == "a a");
  CHECK(tokenizer.decode(Ids{mark, mark_a}) == " a");
  CHECK(tokenizer.decode(Ids{a, mark_a}) == "a a");
  CHECK(tokenizer.decode(Ids{kByte0 + ' ', mark_a}) == "  a");  // a byte is no prefix
  CHECK(tokenizer.decode(Ids{mark_a}, {.continues_text = true}) == " a");
  CHECK(tokenizer.decode(Ids{mark_a, 2, mark_a}) == "a a");
  builder.spec.add_space_prefix = false;
  CHECK(builder.build().decode(Ids{mark_a}) == " a");
}

TEST_CASE("control tokens appear only when asked for", "[tokenizer]") {
  const Tokenizer tokenizer = mixed_vocabulary().build();
  const Ids ids = tokenizer.encode("<s>a</s>", {.add_bos = false, .parse_special = true});
  CHECK(tokenizer.decode(ids) == "a");
  CHECK(tokenizer.decode(ids, {.render_special = true}) == "<s>a</s>");
  CHECK(tokenizer.decode(Ids{0}) == " \xE2\x81\x87 ");
  CHECK(tokenizer.decode(Ids{0}, {.render_special = true}) == "<unk>");
  CHECK(tokenizer.decode({}).empty());
}

TEST_CASE("a literal U+2581 comes back as the space it stands for", "[tokenizer]") {
  const Tokenizer tokenizer = mixed_vocabulary().build();
  CHECK(tokenizer.decode(tokenizer.encode("a" + kMark + "b")) == "a b");
}

}  // namespace llm
