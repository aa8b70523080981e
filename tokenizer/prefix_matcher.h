#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/vocab_spec.h"

namespace llm {

/// The texts of a few tokens, sorted: which of them is the longest prefix of a text? Views point
/// into the tokens' strings.
class PrefixMatcher {
 public:
  struct Match {
    TokenId id = 0;
    std::size_t size = 0;  ///< bytes of text it covers, >= 1
  };
  struct Token {
    std::string_view text;  ///< not empty
    TokenId id = 0;
  };

  PrefixMatcher() = default;
  /// Of tokens with equal text the first stays. Cost: a sort; 24 bytes a token
  explicit PrefixMatcher(std::vector<Token> tokens);

  /// The longest token that `text` starts with and that is not spelled as one of `except`.
  /// Cost: one look-up where no token begins with text's first byte; else two binary searches for
  /// each byte in which tokens that still fit differ, and a comparison of bytes
  std::optional<Match> longest_prefix(std::string_view text,
                                      std::span<const std::string_view> except = {}) const;

  bool empty() const { return tokens_.empty(); }

 private:
  std::vector<Token> tokens_;               ///< ascending by their bytes
  std::array<std::uint32_t, 257> begin_{};  ///< of tokens whose first byte is at least that
};

/// Cuts the tokens of `matcher` out of `text`, going from left to right and taking the longest that
/// fits at each place: on_text(string_view) for each text between them (never empty), on_token(id)
/// for each token, in order.
void cut_out(const PrefixMatcher& matcher, std::string_view text,
             std::span<const std::string_view> except, const auto& on_text, const auto& on_token) {
  std::size_t begin = 0;  // of the text not yet given out
  for (std::size_t at = 0; at < text.size() && !matcher.empty();) {
    const auto match = matcher.longest_prefix(text.substr(at), except);
    if (!match) {
      ++at;
      continue;
    }
    if (begin < at) on_text(text.substr(begin, at - begin));
    on_token(match->id);
    at += match->size;
    begin = at;
  }
  if (begin < text.size()) on_text(text.substr(begin));
}

}  // namespace llm
