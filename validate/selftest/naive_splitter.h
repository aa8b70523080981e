#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llm {

/// A step of the `pre_tokenizer` in a tokenizer.json: each match becomes a piece, and so does what
/// lies between two matches. Hugging Face's Digits, Punctuation and ByteLevel are said as the
/// expression that they stand for.
struct PublishedStep {
  std::string_view regex;
  /// ByteLevel came before, so the text is one of GPT-2's characters for each byte.
  bool after_byte_level = false;
};

/// How the models with that tokenizer.ggml.pre split text, from their tokenizer.json and by the
/// source of `tokenizers`: a second statement of tokenizer/pre_tokenizer_rules.cpp, so that a wrong
/// row there is noticed on any vocabulary.
struct PublishedRule {
  std::string_view name;
  std::span<const PublishedStep> steps;
  bool ignore_merges = false;
};

/// All of them.
std::span<const PublishedRule> all_published_rules();

/// @pre there is one of that name
const PublishedRule& published_rule(std::string_view name);

/// GPT-2's character for each byte.
std::array<char32_t, 256> naive_byte_alphabet();

/// A published rule by plain backtracking over characters: tries every start, alternative and count
/// in the order that the expression says. It reads what the expressions use: alternatives of
/// characters, classes and \p{..}, counted by ?, *, + or {n,m}, (?i:...), (?i:...)?, (?!x) and $
/// (at the end). General categories of single characters are asked of PCRE2.
class NaiveSplitter {
 public:
  explicit NaiveSplitter(const PublishedRule& rule);
  ~NaiveSplitter();

  /// The pieces of `text`. @pre text is UTF-8
  std::vector<std::string> split(std::string_view text) const;

 private:
  using Codes = std::u32string;
  using Set = std::function<bool(char32_t)>;
  struct Item;
  struct Step;

  static Step parse(const PublishedStep& step);
  static std::size_t match(const Step& step, const Codes& text, std::size_t at);
  std::vector<Step> steps_;
};

}  // namespace llm
