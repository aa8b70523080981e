#include "tests/support/test.h"
#include "tests/tokenizer/vocab_builder.h"
#include "tokenizer/tokenizer.h"

namespace llm {
namespace {

const std::string kMark = "\xE2\x96\x81";  // U+2581

Ids bytes_of(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(kByte0 + static_cast<unsigned char>(c));
  return ids;
}

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

TEST_CASE("the dummy prefix stands before the text once", "[tokenizer]") {
  VocabBuilder builder;
  const TokenId mark = builder.add(kMark, -9);
  const TokenId a = builder.add("a", -9);
  const TokenId mark_a = builder.add(kMark + "a", -1);
  const EncodeOptions no_bos = {.add_bos = false};
  const Tokenizer with = builder.build();
  CHECK(with.encode("a", no_bos) == Ids{mark_a});
  CHECK(with.encode(" a", no_bos) == Ids{mark, mark_a});
  CHECK(with.encode("a a", no_bos) == Ids{mark_a, mark_a});
  CHECK(with.encode("a", {.add_bos = false, .add_space_prefix = false}) == Ids{a});
  builder.spec.add_space_prefix = false;
  const Tokenizer without = builder.build();
  CHECK(without.encode("a a", no_bos) == Ids{a, mark_a});
  CHECK(without.encode("a", {.add_bos = false, .add_space_prefix = true}) == Ids{mark_a});
}

TEST_CASE("the highest score merges first, leftmost among equals", "[tokenizer]") {
  VocabBuilder builder = VocabBuilder::bare();
  const TokenId a = builder.add("a", -50);
  const TokenId b = builder.add("b", -50);
  const TokenId c = builder.add("c", -50);
  const TokenId aa = builder.add("aa", -3);
  const TokenId ab = builder.add("ab", -2);
  const TokenId bc = builder.add("bc", -1);
  const Tokenizer tokenizer = builder.build();
  CHECK(tokenizer.encode("abc") == Ids{a, bc});
  CHECK(tokenizer.encode("aab") == Ids{a, ab});
  CHECK(tokenizer.encode("aaa") == Ids{aa, a});
  CHECK(tokenizer.encode("aaaaa") == Ids{aa, aa, a});
  CHECK(tokenizer.encode("cb") == Ids{c, b});
}

TEST_CASE("a piece is reached only through pieces it is made of", "[tokenizer]") {
  VocabBuilder builder = VocabBuilder::bare();
  const TokenId x = builder.add("x", -50);
  builder.add("xyz", -1);  // neither "xy" nor "yz" exists
  const TokenId wx = builder.add("wx", -2);
  const Tokenizer tokenizer = builder.build();
  CHECK(tokenizer.encode("xyz") == Ids{x, kByte0 + 'y', kByte0 + 'z'});
  CHECK(tokenizer.encode("wx") == Ids{wx});  // "w" itself need not be a piece
}

TEST_CASE("characters outside the vocabulary become byte tokens", "[tokenizer]") {
  VocabBuilder builder = VocabBuilder::bare();
  const Tokenizer tokenizer = builder.build();
  CHECK(tokenizer.encode("\xC3\xA9") == bytes_of("\xC3\xA9"));
  CHECK(tokenizer.encode(" ") == bytes_of(kMark));  // as SentencePiece: the mark's bytes
  const std::string nul("a\0b", 3);
  CHECK(tokenizer.encode(nul) == bytes_of(nul));
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

TEST_CASE("without byte tokens a run of unknown characters is one unknown token", "[tokenizer]") {
  VocabBuilder builder = VocabBuilder::bare(VocabBuilder::Bytes::kNo);
  const TokenId a = builder.add("a");
  const Tokenizer tokenizer = builder.build();
  CHECK(tokenizer.encode("axyza\xFFz") == Ids{a, 0, a, 0});
}

TEST_CASE("user-defined tokens are matched before merging, the longest first", "[tokenizer]") {
  VocabBuilder builder;
  builder.spec.add_bos = false;
  const TokenId mark = builder.add(kMark, -9);
  const TokenId a = builder.add("a", -9);
  builder.add("a<", 5);
  builder.add(kMark + "<", 5);
  const TokenId tag = builder.add("<t>", -90, TokenKind::kUserDefined);
  const TokenId long_tag = builder.add("<t>a", -90, TokenKind::kUserDefined);
  const TokenId two_words = builder.add("<x y>", -90, TokenKind::kUserDefined);
  const Tokenizer tokenizer = builder.build();
  CHECK(tokenizer.encode("a<t>") == Ids{mark, a, tag});
  CHECK(tokenizer.encode("<t>aa") == Ids{mark, long_tag, a});
  CHECK(tokenizer.encode("<t><t>") == Ids{mark, tag, tag});
  CHECK(tokenizer.encode("<x y>") == Ids{mark, two_words});  // spelled with a plain space
}

TEST_CASE("a literal spelling never becomes its user-defined token", "[tokenizer]") {
  VocabBuilder builder = VocabBuilder::bare();
  const TokenId tag = builder.add("<t>", -1, TokenKind::kUserDefined);
  const TokenId long_tag = builder.add("<t>a", -1, TokenKind::kUserDefined);
  const TokenId left = builder.add("<t", -2);  // merging alone would reach "<t>" too
  const TokenId close = builder.add(">", -3);
  const TokenId letter = builder.add("z", -3, TokenKind::kUserDefined);
  const TokenId less = builder.add("<", -3);
  builder.add("t", -3);
  const Tokenizer tokenizer = builder.build();
  const std::vector<std::string_view> spellings = {"<t>", "z"};
  const EncodeOptions options = {.literal = spellings};
  CHECK(tokenizer.encode("<t>z<t>a") == Ids{tag, letter, long_tag});
  CHECK(tokenizer.encode("<t>z", options) == Ids{left, close, kByte0 + 'z'});
  CHECK(tokenizer.encode("<t>a", options) == Ids{long_tag});  // another token
  CHECK(tokenizer.encode("<<t>", options) == Ids{less, left, close});
  // A shorter user-defined token that is not literal takes the place of a longer one that is.
  const std::vector<std::string_view> longer = {"<t>a"};
  CHECK(tokenizer.encode("<t>a", {.literal = longer}) == Ids{tag, kByte0 + 'a'});
}

TEST_CASE("only user-defined tokens are literal", "[tokenizer]") {
  VocabBuilder builder = VocabBuilder::bare();
  const TokenId a = builder.add("a");
  const Tokenizer tokenizer = builder.build();
  const std::vector<std::string_view> spellings = {"a", "</s>"};
  CHECK(tokenizer.encode("a</s>", {.parse_special = true, .literal = spellings}) == Ids{a, 2});
}

TEST_CASE("unused pieces are taken apart again", "[tokenizer]") {
  VocabBuilder builder = VocabBuilder::bare();
  const TokenId a = builder.add("a", -50);
  const TokenId ab = builder.add("ab", -1);
  builder.add("abab", -2, TokenKind::kUnused);
  const TokenId whole = builder.add("ababa", -3);
  builder.add("z", -3, TokenKind::kUnused);
  const Tokenizer tokenizer = builder.build();
  CHECK(tokenizer.encode("abab") == Ids{ab, ab});
  CHECK(tokenizer.encode("ababa") == Ids{whole});  // merging goes through it
  CHECK(tokenizer.encode("az") == Ids{a, kByte0 + 'z'});
}

TEST_CASE("control and byte tokens in text are text unless asked for", "[tokenizer]") {
  VocabBuilder builder = VocabBuilder::bare();
  const TokenId end = builder.add("<|im_end|>", 0, TokenKind::kControl);
  const Tokenizer tokenizer = builder.build();
  for (const std::string text : {"</s>", "<unk>", "<0x0A>", "<|im_end|>"}) {
    CHECK(tokenizer.encode(text) == bytes_of(text));
  }
  const EncodeOptions parse = {.parse_special = true};
  CHECK(tokenizer.encode("</s>", parse) == Ids{2});
  CHECK(tokenizer.encode("<unk><|im_end|>", parse) == Ids{0, end});
  CHECK(tokenizer.encode("<0x0A>", parse) == bytes_of("<0x0A>"));
  CHECK(tokenizer.encode("</s", parse) == bytes_of("</s"));
  CHECK(tokenizer.encode("<<s>", parse) == Ids{kByte0 + '<', 1});
}

TEST_CASE("the dummy prefix returns after every control token", "[tokenizer]") {
  VocabBuilder builder;
  const TokenId a = builder.add("a", -9);
  const TokenId mark_a = builder.add(kMark + "a", -1);
  const TokenId tag = builder.add("<t>", 0, TokenKind::kUserDefined);
  const Tokenizer tokenizer = builder.build();
  const EncodeOptions parse = {.parse_special = true};
  CHECK(tokenizer.encode("<s>a</s></s>a", parse) == Ids{1, 1, mark_a, 2, 2, mark_a});
  CHECK(tokenizer.encode("a<t>a", parse) == Ids{1, mark_a, tag, a});
  CHECK(tokenizer.encode("a</s>a", {.add_space_prefix = false, .parse_special = true}) ==
        Ids{1, a, 2, a});
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

TEST_CASE("tokens are found by spelling and know their kind", "[tokenizer]") {
  VocabBuilder builder;
  const TokenId hi = builder.add(kMark + "hi");
  const Tokenizer tokenizer = builder.build();
  CHECK(tokenizer.size() == 260);
  CHECK(tokenizer.find("</s>") == 2);
  CHECK(tokenizer.find("<0x0A>") == kByte0 + 10);
  CHECK(tokenizer.find(kMark + "hi") == hi);
  CHECK_FALSE(tokenizer.find("hi").has_value());
  CHECK_FALSE(tokenizer.find("").has_value());
  CHECK(tokenizer.spelling(hi) == kMark + "hi");
  CHECK(tokenizer.piece_text(hi) == " hi");
  CHECK(tokenizer.kind(2) == TokenKind::kControl);
  CHECK(tokenizer.is_end_of_generation(2));
  CHECK_FALSE(tokenizer.is_end_of_generation(hi));
  CHECK(tokenizer.contains(259));
  CHECK_FALSE(tokenizer.contains(260));
  CHECK_FALSE(tokenizer.contains(-1));
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
