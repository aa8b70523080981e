// Vocabularies made to cost: the work grows with their size and with the text, not with products.

#include "tests/base/colliding_strings.h"
#include "tests/tokenizer/cost.h"
#include "tokenizer/prefix_matcher.h"
#include "tokenizer/tokenizer.h"

namespace llm {
namespace {

VocabSpec vocab_of(const std::vector<std::string>& texts, TokenKind kind) {
  VocabSpec spec;
  spec.tokens.push_back({.text = "<unk>", .score = 0, .kind = TokenKind::kUnknown});
  spec.unknown = 0;
  for (const std::string& text : texts)
    spec.tokens.push_back({.text = text, .score = 0, .kind = kind});
  return spec;
}

Tokenizer tokenizer_with(VocabSpec spec) {
  return test::require_ok(Tokenizer::create(std::move(spec)));
}

}  // namespace

TEST_CASE("the longest prefix is the one that a plain search finds", "[tokenizer]") {
  std::mt19937 random(7);
  const auto word = [&](std::size_t most) {
    std::string text(1 + random() % most, 'a');
    for (char& c : text) c = "ab\xFF"[random() % 3];
    return text;
  };
  for (int round = 0; round < 400; ++round) {
    std::vector<std::string> texts;
    for (std::size_t n = random() % 12; n > 0; --n) texts.push_back(word(6));
    std::vector<PrefixMatcher::Token> tokens;
    for (std::size_t i = 0; i < texts.size(); ++i)
      tokens.push_back({texts[i], static_cast<TokenId>(i)});
    const PrefixMatcher matcher(tokens);
    CHECK(matcher.empty() == texts.empty());
    const std::string hidden = word(3);
    const std::vector<std::string_view> except = {hidden};
    for (int i = 0; i < 20; ++i) {
      const std::string text = i == 0 ? "" : word(9);
      std::optional<std::size_t> expected;
      for (std::size_t t = 0; t < texts.size(); ++t) {
        const bool longer = !expected || texts[t].size() > texts[*expected].size();
        if (text.starts_with(texts[t]) && longer && texts[t] != hidden) expected = t;
      }
      const auto found = matcher.longest_prefix(text, except);
      CAPTURE(texts, text, hidden);
      REQUIRE(found.has_value() == expected.has_value());
      if (!found) continue;
      REQUIRE(found->id == static_cast<TokenId>(*expected));
      REQUIRE(found->size == texts[*expected].size());
    }
  }
}

TEST_CASE("tokens that collide under std::hash cost no more than others", "[tokenizer]") {
  const auto build = [](std::size_t n) {
    const VocabSpec spec = vocab_of(test::colliding_strings(n), TokenKind::kNormal);
    return cost([&] { tokenizer_with(spec); });
  };
  CHECK(build(16'000) / build(4'000) < kMostGrowth);
}

TEST_CASE("a text costs in proportion to its length, whatever long tokens it almost has",
          "[tokenizer]") {
  // The longest that a file may have (docs/bad_input.md, row 56), and 98 of other lengths.
  std::vector<std::string> texts = {std::string(1'023, 'a') + "b", std::string(1'023, 'a') + "c"};
  for (std::size_t n = 2; n < 100; ++n) texts.push_back(std::string(n, 'a') + "x");
  const auto kind = GENERATE(TokenKind::kUserDefined, TokenKind::kControl);
  const Tokenizer tokenizer = tokenizer_with(vocab_of(texts, kind));
  const auto encode = [&](std::size_t n) {
    const std::string text(n, 'a');
    return cost([&] { tokenizer.encode(text, {.parse_special = true}); });
  };
  CHECK(encode(6'000) / encode(1'500) < kMostGrowth);
}

}  // namespace llm
