#include "tokenizer/sentencepiece/piece_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tokenizer/vocab_check.h"

namespace llm {
namespace {

constexpr TokenId kNoToken = -1;

}  // namespace

void append_escaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    if (c == ' ') {
      out += kSpaceMark;
    } else {
      out += c;
    }
  }
}

PieceTable::PieceTable(const VocabSpec& spec) {
  byte_tokens_.fill(kNoToken);
  scores_.reserve(spec.tokens.size());
  kinds_.reserve(spec.tokens.size());
  pieces_.reserve(spec.tokens.size());
  Tokens user_defined;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i)
    add_token(spec.tokens[i], static_cast<TokenId>(i), user_defined);
  user_defined_ = PrefixMatcher(std::move(user_defined));
  if (!spec.merges.empty()) merges_.emplace(spec);
}

void PieceTable::add_token(const VocabSpec::Token& token, TokenId id, Tokens& user_defined) {
  scores_.push_back(token.score);
  kinds_.push_back(token.kind);
  if (token.kind == TokenKind::kByte) return add_byte_token(token.text, id);
  if (token.text.empty()) return;  // can never be matched; decodes to nothing
  if (token.kind == TokenKind::kControl || token.kind == TokenKind::kUnknown) {
    reserved_.emplace(token.text, id);
    return;
  }
  std::string_view text = token.text;
  if (token.kind == TokenKind::kUserDefined) {
    // GGUF converters write these with plain spaces, SentencePiece with U+2581.
    if (text.find(' ') != std::string_view::npos) {
      escaped_.push_back(std::make_unique<std::string>());
      append_escaped(text, *escaped_.back());
      text = *escaped_.back();
    }
    user_defined.push_back({text, id});
  }
  pieces_.emplace(text, id);
  longest_piece_ = std::max(longest_piece_, text.size());
}

void PieceTable::add_byte_token(std::string_view text, TokenId id) {
  const auto value = byte_of_spelling(text);
  LLM_CHECK(value.has_value());
  byte_of_.emplace(id, static_cast<char>(*value));
  reserved_.emplace(text, id);
  TokenId& slot = byte_tokens_[*value];
  if (slot == kNoToken) slot = id;
}

std::optional<TokenId> PieceTable::piece(std::string_view text) const {
  if (text.size() > longest_piece_) return std::nullopt;
  const auto it = pieces_.find(text);
  return it == pieces_.end() ? std::nullopt : std::optional<TokenId>(it->second);
}

std::optional<TokenId> PieceTable::any(std::string_view text) const {
  const auto it = reserved_.find(text);
  return it != reserved_.end() ? std::optional<TokenId>(it->second) : piece(text);
}

}  // namespace llm
