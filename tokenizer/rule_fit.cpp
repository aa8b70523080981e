#include "tokenizer/rule_fit.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/check.h"
#include "tokenizer/byte_bpe/byte_alphabet.h"
#include "tokenizer/byte_bpe/splitter.h"

namespace llm {
namespace {

// Of the published vocabularies at hand (llama.cpp's, SmolLM2's) the worst has one token in 23,000
// that its own rule splits (a marker that is listed as a normal token); of the wrong rules that
// leave no longer numbers whole the best splits one in 4,300 (Falcon's under "default").
constexpr std::size_t kTokensPerStray = 10'000;
/// So many tokens of numbers of a length show that the length was not split.
constexpr std::size_t kEnoughNumbers = 10;
constexpr std::string_view kNumber = "1234567";

std::vector<std::string> ascii_texts(std::span<const VocabSpec::Token> tokens) {
  std::vector<std::string> texts;
  for (const auto& [text, score, kind] : tokens) {
    if (kind != TokenKind::kNormal) continue;
    auto bytes = bytes_of_spelling(text);
    const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    if (bytes && bytes->size() > 1 && std::ranges::all_of(*bytes, is_ascii))
      texts.push_back(*std::move(bytes));
  }
  return texts;
}

/// Digits of the longest number that is a token; those of kNumber where lengths have no end.
std::size_t longest_number(const std::vector<std::string>& texts) {
  std::array<std::size_t, 5> count = {};  // of 2, 3 and at least 4 digits
  for (const std::string& text : texts)
    if (text.find_first_not_of("0123456789") == std::string::npos)
      ++count[std::min<std::size_t>(text.size(), 4)];
  if (count[4] >= kEnoughNumbers) return kNumber.size();
  return count[3] >= kEnoughNumbers ? 3 : count[2] >= kEnoughNumbers ? 2 : 1;
}

std::size_t longest_piece(const Splitter& splitter, std::string_view text) {
  std::size_t longest = 0;
  std::size_t begin = 0;
  for (const std::uint32_t end : splitter.split(text)) {
    longest = std::max(longest, end - begin);
    begin = end;
  }
  return longest;
}

}  // namespace

const RuleFit& RuleFits::of(const PreTokenizerRule& rule) const {
  const auto found = std::ranges::find(rules, &rule, &RuleFit::rule);
  LLM_CHECK(found != rules.end());
  return *found;
}

Result<RuleFits> fit_rules(std::span<const VocabSpec::Token> tokens) {
  const std::vector<std::string> texts = ascii_texts(tokens);
  const std::size_t number = longest_number(texts);
  RuleFits fits{.n_tokens = texts.size(), .rules = {}};
  for (const PreTokenizerRule& rule : all_pre_tokenizer_rules()) {
    // Rules of one expression differ in names and flags only.
    const auto same = std::ranges::find_if(fits.rules, [&rule](const RuleFit& known) {
      return known.rule->passes.data() == rule.passes.data();
    });
    if (same != fits.rules.end()) {
      fits.rules.push_back(*same);
      fits.rules.back().rule = &rule;
      continue;
    }
    LLM_TRY(const Splitter splitter, Splitter::create(rule));
    RuleFit fit{.rule = &rule, .joins_numbers = longest_piece(splitter, kNumber) > number};
    for (const std::string& text : texts) {
      if (splitter.split(text).size() == 1) continue;
      if (fit.strays++ == 0) fit.example = text;
    }
    fit.fits = !fit.joins_numbers && fit.strays <= texts.size() / kTokensPerStray + 1;
    fits.rules.push_back(std::move(fit));
  }
  return fits;
}

}  // namespace llm
