#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/sentencepiece/piece_table.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

struct BpeOptions {
  std::optional<TokenId> unknown;             ///< needed where the vocabulary has no byte tokens
  std::span<const std::string_view> literal;  ///< EncodeOptions::literal
};

/// Segments escaped text into pieces as SentencePiece's BPE does and appends their ids.
///
/// The text starts as a row of symbols: user-defined tokens (longest match first, never merged) and
/// single characters. The adjacent pair whose joint spelling is the piece of the highest score is
/// merged, leftmost first among equals, until no pair is left. Symbols outside the vocabulary
/// become byte tokens, or `unknown` (one for a run of them) where the vocabulary has none.
///
/// Where the table has merges, a pair merges if it is one of them, the lowest rank first, and never
/// across the ends of a run of newlines; a run that is a piece is one symbol.
///
/// A user-defined token whose spelling is `literal` is as if the vocabulary had none of that
/// spelling.
///
/// @pre text.size() < 2^31
/// Cost: O(n log n) time for n characters, about 50 bytes of memory each.
/// Source of rules and algorithm: T. Kudo, J. Richardson, "SentencePiece", EMNLP 2018, and the
/// library's src/bpe_model.cc (Apache-2.0); pinned by the goldens in tests/golden/spm.
void append_bpe(const PieceTable& table, const BpeOptions& options, std::string_view text,
                std::vector<TokenId>& ids);

}  // namespace llm
