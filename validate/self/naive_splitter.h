#ifndef LLM_VALIDATE_SELF_NAIVE_SPLITTER_H_
#define LLM_VALIDATE_SELF_NAIVE_SPLITTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/pre_tokenizer_rules.h"

namespace llm {

/// A rule of byte-level BPE by plain backtracking over characters: tries every start, alternative
/// and count in the order that the expression says. It reads what the expressions of the rules use:
/// alternatives of characters, classes and \p{..}, counted by ?, *, +, {n,m} or ++, (?i:...),
/// (?!x), (?<!x), $ and \z. General categories of single characters are asked of PCRE2.
class NaiveSplitter {
 public:
  explicit NaiveSplitter(const PreTokenizerRule& rule);
  ~NaiveSplitter();

  /// The pieces of `text`. @pre text is UTF-8
  std::vector<std::string> split(std::string_view text) const;

 private:
  using Codes = std::u32string;
  using Set = std::function<bool(char32_t)>;
  struct Item;
  struct Pass;

  static Pass parse(const SplitPass& pass);
  static std::size_t match(const Pass& pass, const Codes& text, std::size_t at);
  std::vector<Pass> passes_;
};

}  // namespace llm

#endif  // LLM_VALIDATE_SELF_NAIVE_SPLITTER_H_
