#include "tokenizer/sentencepiece/sentencepiece.h"

#include <algorithm>

#include "tokenizer/sentencepiece/bpe.h"

namespace llm {

SentencePiece::SentencePiece(const VocabSpec& spec)
    : tokens_(spec.tokens),
      unknown_(spec.unknown),
      add_space_prefix_(spec.add_space_prefix),
      table_(spec) {}

void SentencePiece::append_text(std::string_view text, const EncodeOptions& options,
                                std::vector<TokenId>& ids) const {
  const bool prefix = options.add_space_prefix.value_or(add_space_prefix_);
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 2);
  if (prefix) escaped += kSpaceMark;
  append_escaped(text, escaped);
  append_bpe(table_, {.unknown = unknown_, .literal = options.literal}, escaped, ids);
}

std::string SentencePiece::bytes_of(TokenId id) const {
  const auto& [text, score, kind] = tokens_[static_cast<std::size_t>(id)];
  if (kind == TokenKind::kByte) return std::string(1, table_.byte_of(id));
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = std::min(text.find(kSpaceMark, at), text.size());
    plain.append(text, at, mark - at);
    if (mark < text.size()) plain += ' ';
    at = mark + kSpaceMark.size();
  }
  return plain;
}

}  // namespace llm
