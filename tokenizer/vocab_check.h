#pragma once

#include <fmt/core.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

bool has_byte_tokens(const VocabSpec& spec);

/// The byte that the spelling of a byte token stands for: 0x0A of "<0x0A>". SentencePiece writes
/// two upper-case digits; nothing for any other text.
std::optional<std::uint8_t> byte_of_spelling(std::string_view spelling);

// The rules of a vocabulary, one by one: whoever reads one from a file adds where it stands there.
// Each returns the message of an Error, or nothing.

/// 0 <= id < n_tokens.
template <std::integral Id>
std::optional<std::string> token_id_fault(Id id, std::size_t n_tokens) {
  if (std::cmp_greater_equal(id, 0) && std::cmp_less(id, n_tokens)) return std::nullopt;
  return fmt::format("found token id {}, need an id below {}", id, n_tokens);
}
/// No score is NaN.
std::optional<std::string> score_fault(const VocabSpec& spec);
/// There are 1 to 2^31 - 1 tokens. SentencePiece: those of kind kByte are spelled <0x00> to <0xFF>
/// and name all 256 bytes or none. Byte-level BPE: there are none of that kind, and each byte
/// 0x20 to 0x7E is spelled by a normal token.
std::optional<std::string> token_fault(const VocabSpec& spec);
/// SentencePiece: with no byte tokens there is an unknown token.
std::optional<std::string> unknown_fault(const VocabSpec& spec);
/// Byte-level BPE: both tokens of a merge and what they become are normal tokens, and spelled so.
std::optional<std::string> merge_fault(const VocabSpec& spec);
/// Byte-level BPE: the name is one of tokenizer/pre_tokenizer_rules.h.
std::optional<std::string> pre_tokenizer_fault(const VocabSpec& spec);

/// Tokens that merging may use and make: normal and unused ones.
bool takes_part_in_merges(TokenKind kind, TokenizerKind tokenizer = TokenizerKind::kByteBpe);

/// All of it, bos, eos, unknown, those of fill-in-the-middle and the ends of generation being ids
/// of tokens. Errors: kMalformed; kUnsupported for a pre-tokenizer that is not known.
Status check_vocab(const VocabSpec& spec);

}  // namespace llm
