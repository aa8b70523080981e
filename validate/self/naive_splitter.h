#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "validate/self/published_rules.h"

namespace llm {

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
