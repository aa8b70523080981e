// The rules of merging, of special tokens and of decoding are held against SentencePiece's own ids
// (llama_vocab_test.cpp) and against plain loops (tests/validate/selftest). Here is
// what neither has: sizes, moves, spellings given twice, vocabularies that cannot work.

#include "tests/tokenizer/vocab_builder.h"
#include "tokenizer/tokenizer.h"

namespace llm {
namespace {

const std::string kMark = "\xE2\x96\x81";  // U+2581

}  // namespace

TEST_CASE("empty text gives only the tokens that are added", "[tokenizer]") {
  VocabBuilder builder;
  CHECK(builder.build().encode("") == Ids{1});
  CHECK(builder.build().encode("", {.parse_special = true}) == Ids{1});
  CHECK(builder.build().encode("", {.add_bos = false}).empty());
  CHECK(builder.build().encode("", {.add_eos = true}) == Ids{1, 2});
  builder.spec.add_bos = false;
  builder.spec.add_eos = true;
  CHECK(builder.build().encode("") == Ids{2});
  CHECK(builder.build().encode("", {.add_bos = true, .add_eos = false}) == Ids{1});
  builder.spec.bos.reset();
  builder.spec.eos.reset();
  CHECK(builder.build().encode("", {.add_bos = true, .add_eos = true}).empty());
}

TEST_CASE("merges by rank take the place of scores", "[tokenizer]") {
  VocabBuilder builder = VocabBuilder::bare();
  const TokenId mark = builder.add(kMark);
  const TokenId a = builder.add("a");
  const TokenId b = builder.add("b");
  const TokenId ab = builder.add("ab", 1);
  const TokenId mark_a = builder.add(kMark + "a", 2);
  const TokenId ba = builder.add("ba", 3);
  const TokenId line = builder.add("\n");
  const TokenId three = builder.add("\n\n\n");
  const TokenId b_line = builder.add("b\n");
  builder.spec.merges = {{a, b, ab}, {mark, a, mark_a}, {b, line, b_line}};
  const Tokenizer tokenizer = builder.build();
  CHECK(tokenizer.encode(" ab") == Ids{mark, ab});  // by scores it were mark_a, b
  CHECK(tokenizer.encode(" aab") == Ids{mark_a, ab});
  CHECK(tokenizer.encode("bba") == Ids{b, b, a});  // ba is a piece without a merge
  // A run of newlines stands apart, and is a piece or one of each.
  CHECK(tokenizer.encode("b\nb") == Ids{b, line, b});
  CHECK(tokenizer.encode("\n\n\nab\n\n") == Ids{three, ab, line, line});
  CHECK(tokenizer.encode("\n\n\n\n") == Ids{line, line, line, line});
  CHECK(tokenizer.encode("c") == Ids{byte_id('c')});
  CHECK(tokenizer.find("ba") == ba);
  CHECK(tokenizer.decode(tokenizer.encode(" ab\n\n\nc")) == " ab\n\n\nc");
}

TEST_CASE("each invalid byte becomes its byte token", "[tokenizer]") {
  VocabBuilder builder = VocabBuilder::bare();
  const TokenId a = builder.add("a");
  const TokenId e_acute = builder.add("\xC3\xA9");
  const Tokenizer tokenizer = builder.build();
  // A lead byte without its continuation does not swallow the character that follows.
  CHECK(tokenizer.encode("\xC3"
                         "a\xFF\xC3\xA9\xE2\x96") ==
        Ids{kByte0 + 0xC3, a, kByte0 + 0xFF, e_acute, kByte0 + 0xE2, kByte0 + 0x96});
}

TEST_CASE("a megabyte of one character is encoded and decoded", "[tokenizer]") {
  VocabBuilder builder;
  builder.spec.add_bos = false;
  builder.add(kMark, -50);
  builder.add("a", -50);
  for (const int size : {2, 4, 8}) {
    std::string letters;
    std::string marks;
    for (int i = 0; i < size; ++i) letters += "a", marks += kMark;
    builder.add(letters, static_cast<float>(-size));
    builder.add(marks, static_cast<float>(-size));
  }
  const Tokenizer tokenizer = builder.build();
  constexpr std::size_t kSize = std::size_t{1} << 20;
  const TokenId mark = *tokenizer.find(kMark);
  Ids expected(kSize / 8 + 1, *tokenizer.find("aaaaaaaa"));
  expected.front() = mark;
  CHECK((tokenizer.encode(std::string(kSize, 'a')) == expected));
  CHECK((tokenizer.decode(expected) == std::string(kSize, 'a')));
  const TokenId eight =
      *tokenizer.find(kMark + kMark + kMark + kMark + kMark + kMark + kMark + kMark);
  expected.assign(kSize / 8, eight);
  expected.push_back(mark);
  CHECK((tokenizer.encode(std::string(kSize, ' ')) == expected));
  CHECK((tokenizer.decode(expected) == std::string(kSize, ' ')));
}

TEST_CASE("equal spellings: the first token wins", "[tokenizer]") {
  VocabBuilder builder = VocabBuilder::bare();
  const TokenId first = builder.add("a", -5);
  const TokenId second = builder.add("a", 5);
  const Tokenizer tokenizer = builder.build();
  CHECK(tokenizer.encode("a") == Ids{first});
  CHECK(tokenizer.find("a") == first);
  CHECK(tokenizer.decode(Ids{second}) == "a");
  for (const auto kind : {TokenKind::kUserDefined, TokenKind::kControl, TokenKind::kByte}) {
    builder = VocabBuilder::bare();
    const std::string text = kind == TokenKind::kByte ? "<0x0A>" : "<t>";
    const TokenId before = builder.add(text, 0, kind);
    builder.add(text, 0, kind);
    const bool is_byte = kind == TokenKind::kByte;
    CHECK(builder.build().encode(is_byte ? "\n" : text, {.parse_special = true}) ==
          Ids{is_byte ? kByte0 + 10 : before});
  }
}

TEST_CASE("a moved tokenizer works", "[tokenizer]") {
  VocabBuilder builder;
  const TokenId short_piece = builder.add("q");
  const TokenId tag = builder.add("<a b>", 0, TokenKind::kUserDefined);
  auto first = std::make_unique<Tokenizer>(builder.build());
  const Tokenizer second = std::move(*first);
  first.reset();
  CHECK(second.encode("q<a b>", {.add_bos = false, .add_space_prefix = false}) ==
        Ids{short_piece, tag});
}

TEST_CASE("a vocabulary that cannot work is refused by name", "[tokenizer]") {
  const auto refused = [](const std::string& words, auto spoil,
                          VocabBuilder::Bytes bytes = VocabBuilder::Bytes::kYes) {
    VocabBuilder builder(bytes);
    spoil(builder);
    CAPTURE(words);
    test::must_fail(Tokenizer::create(builder.spec), ErrorCode::kMalformed, {words});
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  refused("found 0 tokens", [](VocabBuilder& b) { b.spec.tokens.clear(); });
  refused("bos: found token id 259, need an id below 259",
          [](VocabBuilder& b) { b.spec.bos = 259; });
  refused("eos: found token id -1", [](VocabBuilder& b) { b.spec.eos = -1; });
  refused("unknown: found token id", [](VocabBuilder& b) { b.spec.unknown = 1 << 30; });
  refused("end of generation: found token id 1000",
          [](VocabBuilder& b) { b.spec.end_of_generation.push_back(1000); });
  refused("scores: found NaN at index 259", [](VocabBuilder& b) { b.add("x", kNan); });
  refused("found byte token id 10 with text \"<0x-1>\"",
          [](VocabBuilder& b) { b.spec.tokens[10].text = "<0x-1>"; });
  refused("found byte token id 10 with text",
          [](VocabBuilder& b) { b.spec.tokens[10].text = "<0xZZ>"; });
  // Lower-case digits, which SentencePiece does not write.
  refused("found byte token id 13 with text \"<0x0a>\"",
          [](VocabBuilder& b) { b.spec.tokens[kByte0 + 10].text = "<0x0a>"; });
  refused("found byte token id 10 with text",
          [](VocabBuilder& b) { b.spec.tokens[10].text = "<0x0A0>"; });
  refused("found 255 byte tokens and no token id for <0x0A>, need all 256",
          [](VocabBuilder& b) { b.spec.tokens[kByte0 + 10].text = "<0x0B>"; });
  refused(
      "found neither byte tokens nor an unknown token",
      [](VocabBuilder& b) { b.spec.unknown.reset(); }, VocabBuilder::Bytes::kNo);
}

}  // namespace llm
