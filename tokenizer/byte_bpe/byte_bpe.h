#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/seeded_hash.h"
#include "tokenizer/byte_bpe/merges.h"
#include "tokenizer/byte_bpe/splitter.h"
#include "tokenizer/prefix_matcher.h"
#include "tokenizer/text_model.h"

namespace llm {

/// Byte-level BPE as GPT-2 has it, over a vocabulary: text is split into pieces by regular
/// expressions, and the bytes of each piece are merged by rank.
class ByteBpe final : public TextModel {
 public:
  /// Errors: those of Splitter::create.
  /// @pre check_vocab(spec), which outlives this (but may be moved)
  static Result<std::unique_ptr<TextModel>> create(const VocabSpec& spec);

  void append_text(std::string_view text, const EncodeOptions& options,
                   std::vector<TokenId>& ids) const override;
  std::string bytes_of(TokenId id) const override;
  std::optional<TokenId> find(std::string_view spelling) const override;

 private:
  using Spellings = std::unordered_map<std::string_view, TokenId, SeededHash>;

  ByteBpe(const VocabSpec& spec, const PreTokenizerRule& rule, Splitter splitter);
  void append_plain(std::string_view text, std::vector<TokenId>& ids) const;
  void append_split(std::string_view text, std::vector<TokenId>& ids) const;
  void append_piece(std::string_view piece, Merger& merger, std::vector<TokenId>& ids) const;

  std::span<const VocabSpec::Token> tokens_;  ///< stays where it is when the vocabulary moves
  Spellings pieces_;                          ///< normal and unused tokens
  Spellings reserved_;                        ///< the others
  PrefixMatcher user_defined_;
  MergeTable merges_;
  std::array<TokenId, 256> byte_tokens_{};  ///< Merger::kNoToken: none
  bool ignore_merges_;
  Splitter splitter_;
};

}  // namespace llm
