// Byte-level BPE: its rules one by one, hostile vocabularies and texts.

#include "base/utf8.h"
#include "tests/tokenizer/cost.h"
#include "tests/tokenizer/tiny_bpe.h"
#include "tests/tokenizer/vocab_builder.h"
#include "tokenizer/byte_bpe/splitter.h"
#include "tokenizer/pre_tokenizer_rules.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace llm::test {
namespace {

Tokenizer built(VocabSpec spec) { return require_ok(Tokenizer::create(std::move(spec))); }

Tokenizer tiny(const std::string& pre_tokenizer) { return built(tiny_bpe(pre_tokenizer)); }

/// The texts of the tokens, with "|" between them.
std::string cut(const Tokenizer& tokenizer, const std::string& text,
                const EncodeOptions& options = {}) {
  std::string out;
  for (const TokenId id : tokenizer.encode(text, options))
    out += (out.empty() ? "" : "|") + tokenizer.piece_text(id, true);
  return out;
}

/// The tiny vocabulary without its merges: each byte is a token but for whole pieces.
VocabSpec unmerged(const std::string& pre_tokenizer) {
  VocabSpec spec = tiny_bpe(pre_tokenizer);
  spec.merges.clear();
  return spec;
}

}  // namespace

TEST_CASE("a piece that is a token is that token only where the rule says so",
          "[tokenizer][byte_bpe]") {
  CHECK(cut(tiny("llama-bpe"), "a tzunami!?!").ends_with("| tzunami|!?!"));
  CHECK(cut(tiny("tekken"), "zzz") == "zzz");
  CHECK(cut(tiny("smaug-bpe"), "zzz") == "z|z|z");
  CHECK(cut(tiny("qwen2"), "zzz") == "z|z|z");
  // Nor is a piece that is spelled as a control token.
  VocabSpec spec = tiny_bpe("llama-bpe");
  spec.tokens.push_back({.text = "zzzz", .score = 0, .kind = TokenKind::kControl});
  CHECK(cut(built(spec), "zzzz") == "z|z|z|z");
}

TEST_CASE("the lowest rank merges first, the leftmost among equals", "[tokenizer][byte_bpe]") {
  VocabSpec spec = unmerged("gpt-2");
  const auto id = [&spec](const std::string& text) {
    const auto found = std::ranges::find(spec.tokens, text, &VocabSpec::Token::text);
    if (found != spec.tokens.end()) return static_cast<TokenId>(found - spec.tokens.begin());
    spec.tokens.push_back({.text = text});
    return static_cast<TokenId>(spec.tokens.size()) - 1;
  };
  const auto merge = [&](const std::string& left, const std::string& right) {
    spec.merges.push_back({id(left), id(right), id(left + right)});
  };
  merge("x", "y");
  merge("y", "z");
  merge("q", "q");
  merge("x", "yz");
  merge("q", "w");
  merge("q", "q");  // given twice: the first counts
  CHECK(cut(built(spec), "qqw") == "qq|w");
  CHECK(cut(built(spec), "xyz") == "xy|z");
  CHECK(cut(built(spec), "qqqqq") == "qq|qq|q");
  std::swap(spec.merges[0], spec.merges[1]);
  CHECK(cut(built(spec), "xyz") == "xyz");
  CHECK(cut(built(spec), "qqq") == "qq|q");
}

TEST_CASE("what PCRE2 would read otherwise is read as in tokenizer.json", "[tokenizer][byte_bpe]") {
  // Tokens that no merges make show the pieces.
  VocabSpec spec = unmerged("llama-bpe");
  // The bytes of U+017F are C5 BF. It folds to s under (?i:...).
  for (const char* text : {"'\u00C5\u00BF", "'S", "'lL"}) spec.tokens.push_back({.text = text});
  const Tokenizer whole = built(spec);
  CHECK(cut(whole, "x'\u017F") == "x|'\u017F");
  CHECK(cut(whole, "x'Sx") == "x|'S|x");
  CHECK(cut(whole, "x'lLx") == "x|'lL|x");
  // U+180E is no space since Unicode 6.3: two spaces before it are "\s+(?!\S)" and " ?[^\s...]+".
  VocabSpec spaces = unmerged("llama-bpe");
  spaces.tokens.push_back({.text = "\u0120\u0120"});
  spaces.tokens.push_back({.text = "\u0120\u00E1\u0142\u0130"});  // " " and the bytes E1 A0 8E
  CHECK(cut(built(spaces), "  \u180E") == " | \u180E");
  CHECK(cut(built(spaces), "  ") == "  ");
}

TEST_CASE("deepseek-llm's spaces at the end are those of the published $",
          "[tokenizer][byte_bpe]") {
  const PreTokenizerRule& rule = *find_pre_tokenizer_rule("deepseek-llm");
  std::vector<SplitPass> published(rule.passes.begin(), rule.passes.end());
  const auto pass = std::ranges::find(published, R"((?<!\s)\s++\z)", &SplitPass::regex);
  REQUIRE(pass != published.end());
  // PCRE2's $, which also stands before a line break at the end, and before any (tokenizers').
  const auto dollar = GENERATE(R"(\s+$)", R"((?m)\s+$)");
  pass->regex = dollar;
  PreTokenizerRule other = rule;
  other.passes = published;
  const auto ours = require_ok(Splitter::create(rule));
  const auto theirs = require_ok(Splitter::create(other));
  const std::vector<std::string> parts = {" ",      "\t",     "\n",     "\r",     "\v",
                                          "\f",     "\u0085", "\u00A0", "\u2028", "\u3000",
                                          "\u0E01", "a",      "1",      "!"};
  std::mt19937 random(11);
  for (int i = 0; i < 4000; ++i) {
    std::string text;
    for (std::size_t n = 1 + random() % 9; n > 0; --n) text += parts[random() % parts.size()];
    CAPTURE(dollar, text);
    CHECK(ours.split(text) == theirs.split(text));
  }
}

TEST_CASE("bytes without a token are dropped, and their neighbours may merge",
          "[tokenizer][byte_bpe]") {
  const VocabSpec spec = lacking_bytes(tiny_bpe("gpt-2"));
  const Tokenizer tokenizer = built(spec);
  const auto same = [&](const std::string& text, const std::string& kept) {
    CAPTURE(text);
    const Ids ids = tokenizer.encode(text, {.add_bos = false});
    CHECK(tokenizer.decode(ids, {.keep_invalid = true}) == kept);
    return ids;
  };
  CHECK(same("\x04", "").empty());
  CHECK(same("\x04\x04 \x04", " ").size() == 1);
  same("a\x04z\xF1\x80\x80\x80z", "az\x80\x80\x80z");
  same("a\xFFz\xFE", "az\xFE");
  same("\u00AD", "\xC2");
  // Within a piece what is left merges as if the byte had never been there; pieces stay apart.
  VocabSpec joining = spec;
  const auto bang = std::ranges::find(joining.tokens, "!", &VocabSpec::Token::text);
  const auto id = static_cast<TokenId>(bang - joining.tokens.begin());
  joining.merges.insert(joining.merges.begin(),
                        {id, id, static_cast<TokenId>(joining.tokens.size())});
  joining.tokens.push_back({.text = "!!"});
  CHECK(cut(built(joining), "!\x04!") == "!!");
  CHECK(cut(built(joining), "!\x04!a!\x04\x04\x04!") == "!!|a|!!");
  CHECK(cut(tokenizer, "the\x04the") == "the|the");
}

TEST_CASE("a byte-level vocabulary that cannot work is refused", "[tokenizer][byte_bpe]") {
  const auto refused = [](const std::string& words, auto spoil,
                          ErrorCode code = ErrorCode::kMalformed) {
    VocabSpec spec = tiny_bpe("gpt-2");
    spoil(spec);
    CAPTURE(words);
    must_fail(Tokenizer::create(spec), code, {words});
  };
  const auto token = [](VocabSpec& spec, const char* text) {
    return std::ranges::find(spec.tokens, text, &VocabSpec::Token::text);
  };
  refused(
      "found \"gpt-5\", need one of llama-bpe, ",
      [](VocabSpec& spec) { spec.pre_tokenizer = "gpt-5"; }, ErrorCode::kUnsupported);
  refused("found no token \"a\" for byte 0x61, need one for each printable byte of ASCII",
          [&](VocabSpec& spec) { token(spec, "a")->kind = TokenKind::kUserDefined; });
  refused("found no token \"\u0120\" for byte 0x20",
          [&](VocabSpec& spec) { token(spec, "\u0120")->text = "lacking"; });
  refused("need none in byte-level BPE", [](VocabSpec& spec) {
    spec.tokens.push_back({.text = "<0x0A>", .score = 0, .kind = TokenKind::kByte});
  });
  refused("found token id 100000, need an id below 1509 in merge 7",
          [](VocabSpec& spec) { spec.merges[7].right = 100'000; });
  refused("in merge 7, need a normal token",
          [](VocabSpec& spec) { spec.merges[7].joined = *spec.eos; });
  refused("in merge 7, need the spellings of its parts",
          [](VocabSpec& spec) { std::swap(spec.merges[7].joined, spec.merges[8].joined); });
}

TEST_CASE("a text costs in proportion to its length under every rule", "[tokenizer][byte_bpe]") {
  // Of 16 times as much work: about 16, and 256 where it is quadratic.
  constexpr double kMost = 80;
  const void* passes = nullptr;
  for (const PreTokenizerRule& rule : all_pre_tokenizer_rules()) {
    if (rule.passes.data() == passes) continue;  // as the rule before
    passes = rule.passes.data();
    const Tokenizer tokenizer = tiny(std::string(rule.name));
    for (const std::string unit : {"a", "A", " ", " \n", "1", "!", "\u0301", "\xFF"}) {
      for (const std::string end : {"", "5"}) {
        const auto encode = [&](std::size_t n) {
          std::string text;
          while (text.size() < n) text += unit;
          text += end;
          return cost([&] { tokenizer.encode(text); });
        };
        CAPTURE(rule.name, unit, end);
        CHECK(encode(64'000) / encode(4'000) < kMost);
      }
    }
  }
}

TEST_CASE("a megabyte of one letter that merges again and again", "[tokenizer][byte_bpe]") {
  VocabSpec spec = unmerged("gpt-2");
  std::string text = "k";
  auto left = static_cast<TokenId>(std::ranges::find(spec.tokens, "k", &VocabSpec::Token::text) -
                                   spec.tokens.begin());
  for (int i = 0; i < 12; ++i) {
    text += text;
    const auto joined = static_cast<TokenId>(spec.tokens.size());
    spec.tokens.push_back({.text = text});
    spec.merges.push_back({left, left, joined});
    left = joined;
  }
  const Ids ids = built(spec).encode(std::string(std::size_t{1} << 20, 'k'));
  CHECK(ids == Ids(256, left));
}

}  // namespace llm::test
