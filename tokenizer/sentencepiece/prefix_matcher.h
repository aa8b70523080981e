#ifndef LLM_TOKENIZER_SENTENCEPIECE_PREFIX_MATCHER_H_
#define LLM_TOKENIZER_SENTENCEPIECE_PREFIX_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/vocab_spec.h"

namespace llm {

/// A trie over the texts of a few tokens: which of them is the longest prefix of a text?
class PrefixMatcher {
 public:
  struct Match {
    TokenId id = 0;
    std::size_t size = 0;  ///< bytes of text it covers, >= 1
  };

  /// Of two tokens with equal text the first stays. @pre !text.empty()
  void add(std::string_view text, TokenId id);

  /// The longest token that `text` starts with and that is not spelled as one of `except`.
  /// Cost: one hash lookup a byte of the longest path.
  std::optional<Match> longest_prefix(std::string_view text,
                                      std::span<const std::string_view> except = {}) const;

  bool empty() const { return token_at_.size() == 1; }

 private:
  static constexpr TokenId kNone = -1;
  static std::uint64_t edge(std::uint32_t node, char byte) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }

  std::unordered_map<std::uint64_t, std::uint32_t> child_;  ///< edge(node, byte) -> node
  std::vector<TokenId> token_at_{kNone};  ///< node -> token ending there; node 0 is the root
};

}  // namespace llm

#endif  // LLM_TOKENIZER_SENTENCEPIECE_PREFIX_MATCHER_H_
