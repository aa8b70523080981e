#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/vocab_spec.h"
#include "validate/self/naive_splitter.h"

namespace llm {

/// The rules of docs/tokenizer.md for byte-level BPE in plain loops, for a text without
/// user-defined tokens. Cubic in a piece: for short texts.
class NaiveByteBpe {
 public:
  /// @pre check_vocab(spec), of byte-level BPE
  explicit NaiveByteBpe(const VocabSpec& spec);

  /// @param rightmost  of merges of one rank the rightmost is first (the rule is leftmost)
  void append(std::string_view text, bool rightmost, std::vector<TokenId>& ids) const;

  /// Whether a byte of `text` has no token, so that it is lost.
  bool loses_bytes(std::string_view text) const;

  /// The bytes of a token that is no control, unknown or user-defined one.
  std::string bytes_of(const std::string& spelling) const;

 private:
  NaiveByteBpe(const VocabSpec& spec, const PublishedRule& rule);
  std::optional<std::string> in_alphabet(const std::string& spelling) const;
  void append_piece(std::string_view piece, bool rightmost, std::vector<TokenId>& ids) const;

  std::map<char32_t, char> byte_of_;      ///< GPT-2's alphabet
  std::map<std::string, TokenId> whole_;  ///< by bytes, where merges are ignored
  std::array<std::optional<TokenId>, 256> byte_tokens_;
  std::map<std::pair<TokenId, TokenId>, std::pair<std::size_t, TokenId>> merges_;  ///< rank, joined
  NaiveSplitter splitter_;
};

}  // namespace llm
