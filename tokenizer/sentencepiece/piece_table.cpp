#include "tokenizer/sentencepiece/piece_table.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace llm {
namespace {

constexpr TokenId kNoToken = -1;

Error malformed(std::string field, std::string message) {
  return Error{
      .code = ErrorCode::kMalformed, .field = std::move(field), .message = std::move(message)};
}

std::string token_name(TokenId id) { return fmt::format("token {}", id); }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/// The value of a spelling "<0xHH>", or -1.
int byte_value(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = hex_digit(text[3]);
  const int low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Status check_id(std::optional<TokenId> id, std::size_t size, std::string_view field) {
  if (!id || (*id >= 0 && static_cast<std::size_t>(*id) < size)) return Ok{};
  return malformed(std::string(field),
                   fmt::format("found token id {}, need an id below {}", *id, size));
}

Status check_ids(const VocabSpec& spec) {
  const std::size_t size = spec.tokens.size();
  if (size == 0 || size > std::numeric_limits<TokenId>::max()) {
    return malformed("vocabulary", fmt::format("found {} tokens, need 1 to 2^31 - 1", size));
  }
  LLM_RETURN_IF_ERROR(check_id(spec.bos, size, "bos"));
  LLM_RETURN_IF_ERROR(check_id(spec.eos, size, "eos"));
  LLM_RETURN_IF_ERROR(check_id(spec.unknown, size, "unknown"));
  for (const TokenId id : spec.end_of_generation) {
    LLM_RETURN_IF_ERROR(check_id(id, size, "end of generation"));
  }
  return Ok{};
}

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

Result<PieceTable> PieceTable::create(const VocabSpec& spec) {
  LLM_RETURN_IF_ERROR(check_ids(spec));
  PieceTable table;
  table.byte_tokens_.fill(kNoToken);
  table.scores_.reserve(spec.tokens.size());
  table.kinds_.reserve(spec.tokens.size());
  table.pieces_.reserve(spec.tokens.size());
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    LLM_RETURN_IF_ERROR(table.add_token(spec.tokens[i], static_cast<TokenId>(i)));
  }
  table.has_byte_tokens_ = !table.byte_of_.empty();
  for (std::size_t byte = 0; table.has_byte_tokens_ && byte < 256; ++byte) {
    if (table.byte_tokens_[byte] != kNoToken) continue;
    return malformed("vocabulary",
                     fmt::format("found no byte token <0x{:02X}>, need all 256 or none", byte));
  }
  if (!table.has_byte_tokens_ && !spec.unknown) {
    return malformed("vocabulary", "found neither byte tokens nor an unknown token, need one");
  }
  return table;
}

Status PieceTable::add_token(const VocabSpec::Token& token, TokenId id) {
  if (std::isnan(token.score)) return malformed(token_name(id), "found score NaN, need a number");
  scores_.push_back(token.score);
  kinds_.push_back(token.kind);
  if (token.kind == TokenKind::kByte) return add_byte_token(token.text, id);
  if (token.text.empty()) return Ok{};  // can never be matched; decodes to nothing
  if (token.kind == TokenKind::kControl || token.kind == TokenKind::kUnknown) {
    reserved_.emplace(token.text, id);
    special_.add(token.text, id);
    return Ok{};
  }
  std::string_view text = token.text;
  if (token.kind == TokenKind::kUserDefined) {
    // GGUF converters write these with plain spaces, SentencePiece with U+2581.
    if (text.find(' ') != std::string_view::npos) {
      escaped_.push_back(std::make_unique<std::string>());
      append_escaped(text, *escaped_.back());
      text = *escaped_.back();
    }
    user_defined_.add(text, id);
  }
  pieces_.emplace(text, id);
  longest_piece_ = std::max(longest_piece_, text.size());
  return Ok{};
}

Status PieceTable::add_byte_token(std::string_view text, TokenId id) {
  const int value = byte_value(text);
  if (value < 0) {
    return malformed(token_name(id),
                     fmt::format("found byte token \"{}\", need <0x00> to <0xFF>", text));
  }
  byte_of_.emplace(id, static_cast<char>(value));
  reserved_.emplace(text, id);
  TokenId& slot = byte_tokens_[static_cast<std::size_t>(value)];
  if (slot == kNoToken) slot = id;
  return Ok{};
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
