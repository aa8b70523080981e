#include "tokenizer/byte_bpe/byte_bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/byte_bpe/byte_alphabet.h"

namespace llm {
namespace {

/// The pieces of one text that were encoded last, each with the place of its ids in the output: in
/// prose most pieces come again and again. A piece has one slot and displaces what is there, so
/// memory is bounded, and pieces made to collide cost no more than no cache.
class RecentPieces {
 public:
  struct Entry {
    std::string_view piece;
    std::size_t first_id = 0;
    std::size_t n_ids = 0;
  };

  /// @param n_bytes  of the text
  explicit RecentPieces(std::size_t n_bytes)
      : slots_(std::bit_ceil(std::clamp<std::size_t>(n_bytes / 16, 16, std::size_t{1} << 15))) {}

  Entry& slot_of(std::string_view piece) { return slots_[hash(piece) & (slots_.size() - 1)]; }

 private:
  static std::size_t hash(std::string_view piece) {
    std::uint64_t value = piece.size();
    while (!piece.empty()) {
      std::uint64_t word = 0;
      const std::size_t n = std::min<std::size_t>(8, piece.size());
      std::memcpy(&word, piece.data(), n);
      value = (value ^ word) * 0x9E3779B97F4A7C15U;
      value ^= value >> 29;
      piece.remove_prefix(n);
    }
    return value ^ value >> 32;
  }

  std::vector<Entry> slots_;
};

}  // namespace

Result<std::unique_ptr<TextModel>> ByteBpe::create(const VocabSpec& spec) {
  const PreTokenizerRule* rule = find_pre_tokenizer_rule(spec.pre_tokenizer);
  LLM_CHECK(rule != nullptr);
  LLM_TRY(Splitter splitter, Splitter::create(*rule));
  return std::unique_ptr<TextModel>(new ByteBpe(spec, *rule, std::move(splitter)));
}

ByteBpe::ByteBpe(const VocabSpec& spec, const PreTokenizerRule& rule, Splitter splitter)
    : tokens_(spec.tokens),
      merges_(spec),
      ignore_merges_(rule.ignore_merges),
      splitter_(std::move(splitter)) {
  std::vector<PrefixMatcher::Token> user_defined;
  pieces_.reserve(tokens_.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const auto& [text, score, kind] = tokens_[i];
    const auto id = static_cast<TokenId>(i);
    if (text.empty()) continue;  // can never be matched; decodes to nothing
    const bool is_piece = kind == TokenKind::kNormal || kind == TokenKind::kUnused;
    (is_piece ? pieces_ : reserved_).emplace(text, id);
    if (kind == TokenKind::kUserDefined) user_defined.push_back({text, id});
  }
  user_defined_ = PrefixMatcher(std::move(user_defined));
  for (std::size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    const auto found = pieces_.find(spelling_of_byte(static_cast<std::uint8_t>(byte)));
    byte_tokens_[byte] = found == pieces_.end() ? Merger::kNoToken : found->second;
  }
}

void ByteBpe::append_text(std::string_view text, const EncodeOptions& options,
                          std::vector<TokenId>& ids) const {
  cut_out(
      user_defined_, text, options.literal,
      [&](std::string_view plain) { append_plain(plain, ids); },
      [&](TokenId id) { ids.push_back(id); });
}

/// Bytes that are no UTF-8 are no characters that an expression could match: each run of them is a
/// piece, and text before and after it is split by itself.
void ByteBpe::append_plain(std::string_view text, std::vector<TokenId>& ids) const {
  Merger merger(merges_, byte_tokens_);
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_size(text);
    if (valid > 0) append_split(text.substr(0, valid), ids);
    std::size_t end = valid;
    while (end < text.size() && utf8_head(text.substr(end)).kind != Utf8Head::Kind::kCharacter)
      ++end;
    if (end > valid) append_piece(text.substr(valid, end - valid), merger, ids);
    text.remove_prefix(end);
  }
}

void ByteBpe::append_split(std::string_view text, std::vector<TokenId>& ids) const {
  Merger merger(merges_, byte_tokens_);
  RecentPieces recent(text.size());
  std::size_t begin = 0;
  for (const std::uint32_t end : splitter_.split(text)) {
    const std::string_view piece = text.substr(begin, end - begin);
    begin = end;
    RecentPieces::Entry& entry = recent.slot_of(piece);
    if (entry.piece == piece) {
      for (std::size_t i = 0; i < entry.n_ids; ++i) {
        const TokenId id = ids[entry.first_id + i];
        ids.push_back(id);
      }
      continue;
    }
    entry = {piece, ids.size(), 0};
    append_piece(piece, merger, ids);
    entry.n_ids = ids.size() - entry.first_id;
  }
}

void ByteBpe::append_piece(std::string_view piece, Merger& merger,
                           std::vector<TokenId>& ids) const {
  if (ignore_merges_) {
    const auto whole = pieces_.find(spelling_of_bytes(piece));
    if (whole != pieces_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  merger.append(piece, ids);
}

std::string ByteBpe::bytes_of(TokenId id) const {
  const auto& [text, score, kind] = tokens_[static_cast<std::size_t>(id)];
  if (kind == TokenKind::kUserDefined) return text;
  return bytes_of_spelling(text).value_or(text);
}

std::optional<TokenId> ByteBpe::find(std::string_view spelling) const {
  for (const Spellings* spellings : {&reserved_, &pieces_}) {
    const auto found = spellings->find(spelling);
    if (found != spellings->end()) return found->second;
  }
  return std::nullopt;
}

}  // namespace llm
