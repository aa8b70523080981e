#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab_spec.h"
#include "validate/selftest/naive_splitter.h"

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

/// Which of neighbouring pairs with equal scores (byte-level BPE: of one merge) merges first. The
/// rule is leftmost; the other one tells whether a text can show the difference.
enum class EqualScores { kLeftmost, kRightmost };

/// The rules of docs/tokenizer.md in plain loops, written from that page and sharing nothing with
/// tokenizer/ but the vocabulary and the options. Quadratic: for short texts.
class NaiveTokenizer {
 public:
  /// @pre check_vocab(spec); spec outlives this
  explicit NaiveTokenizer(const VocabSpec& spec);

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options,
                              EqualScores equal = EqualScores::kLeftmost) const;
  /// The bytes that the ids stand for, whether or not they form characters.
  std::string decode_bytes(std::span<const TokenId> ids, const DecodeOptions& options) const;

  /// The bytes of a token that is neither control nor unknown.
  std::string bytes_of(TokenId id) const;

  /// Whether the vocabulary has no token for a byte of `text` (byte-level BPE).
  bool loses_bytes(std::string_view text) const {
    return byte_bpe_ && byte_bpe_->loses_bytes(text);
  }

  /// The token that text of this spelling may become, control, unknown and byte tokens aside.
  std::optional<TokenId> piece(std::string_view spelling) const;

 private:
  /// Tokens that are looked for in a text, by the first byte of their spelling.
  using Spellings = std::array<std::vector<std::pair<std::string, TokenId>>, 256>;
  using Literal = std::span<const std::string_view>;
  struct Symbol;
  struct Merging;

  static const std::pair<std::string, TokenId>* longest_at(const Spellings& spellings,
                                                           std::string_view text, Literal literal);
  std::optional<TokenId> visible_piece(std::string_view spelling, Literal literal) const;
  void append_plain(std::string_view text, const EncodeOptions& options, EqualScores equal,
                    std::vector<TokenId>& ids) const;
  void append_byte_bpe(std::string_view text, const EncodeOptions& options, EqualScores equal,
                       std::vector<TokenId>& ids) const;
  void append_sentencepiece(std::string_view text, const EncodeOptions& options, EqualScores equal,
                            std::vector<TokenId>& ids) const;
  std::vector<Symbol> split(std::string_view text, Literal literal) const;
  void join_with_next(Merging& merging, std::size_t i) const;
  /// Of a pair that joins to a piece, how soon it merges; nothing: never.
  std::optional<float> score_of(const std::string& left, const std::string& right) const;
  void give_out(const Merging& merging, const std::string& spelling, bool& in_unknown_run,
                std::vector<TokenId>& ids) const;

  const VocabSpec& spec_;
  std::map<std::string, TokenId> pieces_;
  Spellings user_defined_;
  Spellings special_;
  std::array<std::optional<TokenId>, 256> byte_tokens_;
  std::optional<NaiveByteBpe> byte_bpe_;                              ///< for such a vocabulary
  std::map<std::pair<std::string, std::string>, std::size_t> ranks_;  ///< of Gemma 4's merges
};

/// Whether `text` is one whole character of UTF-8, by the value that its bits make up.
bool naive_is_character(std::string_view text);
/// Bytes of the character that `text` begins with; 0: it begins with none.
std::size_t naive_character_size(std::string_view text);

/// `bytes` with U+FFFD for each byte that belongs to no character.
std::string naive_valid_utf8(std::string_view bytes);

/// `bytes` without the beginning of a character at its end.
std::string_view naive_without_half_character(std::string_view bytes);

}  // namespace llm
