#include <algorithm>

#include "validate/selftest/naive_tokenizer.h"

namespace llm {
NaiveByteBpe::NaiveByteBpe(const VocabSpec& spec)
    : NaiveByteBpe(spec, published_rule(spec.pre_tokenizer)) {}

NaiveByteBpe::NaiveByteBpe(const VocabSpec& spec, const PublishedRule& rule) : splitter_(rule) {
  const auto alphabet = naive_byte_alphabet();
  for (std::size_t byte = 0; byte < alphabet.size(); ++byte)
    byte_of_[alphabet[byte]] = static_cast<char>(byte);
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const auto& [text, score, kind] = spec.tokens[i];
    if (text.empty() || (kind != TokenKind::kNormal && kind != TokenKind::kUnused)) continue;
    const auto bytes = in_alphabet(text);
    if (!bytes) continue;
    const auto id = static_cast<TokenId>(i);
    if (bytes->size() == 1 && !byte_tokens_[static_cast<unsigned char>(bytes->front())])
      byte_tokens_[static_cast<unsigned char>(bytes->front())] = id;
    if (rule.ignore_merges) whole_.emplace(*bytes, id);
  }
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right, joined] = spec.merges[rank];
    merges_.emplace(std::pair(left, right), std::pair(rank, joined));
  }
}

std::string NaiveByteBpe::bytes_of(const std::string& spelling) const {
  return in_alphabet(spelling).value_or(spelling);
}

std::optional<std::string> NaiveByteBpe::in_alphabet(const std::string& spelling) const {
  std::string bytes;
  for (std::size_t at = 0; at < spelling.size();) {
    const std::size_t size = naive_character_size(std::string_view(spelling).substr(at));
    if (size == 0 || size > 2) return std::nullopt;
    char32_t code = static_cast<unsigned char>(spelling[at]);
    if (size == 2)
      code = (code & 0x1F) << 6 | (static_cast<unsigned char>(spelling[at + 1]) & 0x3F);
    const auto found = byte_of_.find(code);
    if (found == byte_of_.end()) return std::nullopt;
    bytes += found->second;
    at += size;
  }
  return bytes;
}

bool NaiveByteBpe::loses_bytes(std::string_view text) const {
  return std::ranges::any_of(
      text, [this](char c) { return !byte_tokens_[static_cast<unsigned char>(c)]; });
}

void NaiveByteBpe::append(std::string_view text, bool rightmost, std::vector<TokenId>& ids) const {
  std::string characters;
  std::string others;
  const auto give_out = [&] {
    for (const std::string& piece : splitter_.split(characters))
      append_piece(piece, rightmost, ids);
    append_piece(others, rightmost, ids);
    characters.clear();
    others.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = naive_character_size(text.substr(at));
    if (size > 0 && !others.empty()) give_out();
    (size > 0 ? characters : others).append(text, at, size > 0 ? size : 1);
    at += size > 0 ? size : 1;
  }
  give_out();
}

void NaiveByteBpe::append_piece(std::string_view piece, bool rightmost,
                                std::vector<TokenId>& ids) const {
  if (const auto whole = whole_.find(std::string(piece)); whole != whole_.end()) {
    ids.push_back(whole->second);
    return;
  }
  std::vector<TokenId> symbols;
  for (const char c : piece) {
    if (const auto id = byte_tokens_[static_cast<unsigned char>(c)]) symbols.push_back(*id);
  }
  while (true) {
    std::optional<std::size_t> best;
    std::pair<std::size_t, TokenId> merge;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = merges_.find(std::pair(symbols[i], symbols[i + 1]));
      if (found == merges_.end()) continue;
      const std::size_t rank = found->second.first;
      if (best && (rank > merge.first || (rank == merge.first && !rightmost))) continue;
      best = i;
      merge = found->second;
    }
    if (!best) break;
    symbols[*best] = merge.second;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(*best) + 1);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

}  // namespace llm
