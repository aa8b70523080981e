#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/seeded_hash.h"
#include "tokenizer/byte_bpe/merges.h"
#include "tokenizer/prefix_matcher.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// U+2581, the mark that pieces carry in place of a space.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

/// Appends `text` with each space written as kSpaceMark.
void append_escaped(std::string_view text, std::string& out);

/// The lookups of encoding and decoding, made once from a vocabulary and immutable. Views point
/// into the vocabulary's strings, so it must outlive the table (its vector may be moved).
class PieceTable {
 public:
  /// @pre check_vocab(spec)
  explicit PieceTable(const VocabSpec& spec);

  /// The token that text of this spelling may become: normal, user-defined and unused pieces.
  std::optional<TokenId> piece(std::string_view text) const;
  /// Any token by its spelling; control, unknown and byte tokens come first.
  std::optional<TokenId> any(std::string_view text) const;

  float score(TokenId id) const { return scores_[static_cast<std::size_t>(id)]; }
  /// Merges by rank, which take the place of scores; nullptr: scores count.
  const MergeTable* merges() const { return merges_ ? &*merges_ : nullptr; }
  TokenKind kind(TokenId id) const { return kinds_[static_cast<std::size_t>(id)]; }
  bool has_byte_tokens() const { return !byte_of_.empty(); }
  /// @pre has_byte_tokens()
  TokenId byte_token(unsigned char byte) const { return byte_tokens_[byte]; }
  /// The byte that a token of kind kByte stands for.
  char byte_of(TokenId id) const { return byte_of_.at(id); }

  /// User-defined tokens, over escaped text.
  const PrefixMatcher& user_defined() const { return user_defined_; }

 private:
  using Tokens = std::vector<PrefixMatcher::Token>;
  void add_token(const VocabSpec::Token& token, TokenId id, Tokens& user_defined);
  void add_byte_token(std::string_view text, TokenId id);

  std::unordered_map<std::string_view, TokenId, SeededHash> pieces_;
  std::unordered_map<std::string_view, TokenId, SeededHash> reserved_;
  std::vector<std::unique_ptr<std::string>> escaped_;  ///< spellings that differ from the spec's
  std::size_t longest_piece_ = 0;                      ///< bytes
  std::vector<float> scores_;
  std::vector<TokenKind> kinds_;
  std::array<TokenId, 256> byte_tokens_{};
  std::unordered_map<TokenId, char> byte_of_;
  PrefixMatcher user_defined_;
  std::optional<MergeTable> merges_;
};

}  // namespace llm
