#pragma once

#include <span>

#include "tokenizer/sentencepiece/piece_table.h"
#include "tokenizer/text_model.h"

namespace llm {

/// SentencePiece's BPE over a vocabulary.
class SentencePiece final : public TextModel {
 public:
  /// @pre check_vocab(spec), which outlives this (but may be moved)
  explicit SentencePiece(const VocabSpec& spec);

  void append_text(std::string_view text, const EncodeOptions& options,
                   std::vector<TokenId>& ids) const override;
  std::string bytes_of(TokenId id) const override;
  std::optional<TokenId> find(std::string_view spelling) const override {
    return table_.any(spelling);
  }

 private:
  std::span<const VocabSpec::Token> tokens_;  ///< stays where it is when the vocabulary moves
  std::optional<TokenId> unknown_;
  bool add_space_prefix_;
  PieceTable table_;
};

}  // namespace llm
