#include "validate/selftest/naive_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace llm {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";           // U+2581
constexpr std::string_view kUnknownText = " \xE2\x81\x87 ";  // U+2047 between spaces
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";    // U+FFFD
constexpr std::size_t kMostBytes = 4;                        // of a character

unsigned byte_of(char c) { return static_cast<unsigned char>(c); }

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool here = text.substr(at).starts_with(from);
    out += here ? to : text.substr(at, 1);
    at += here ? from.size() : 1;
  }
  return out;
}

}  // namespace

bool naive_is_character(std::string_view text) {
  if (text.size() == 1) return byte_of(text[0]) < 0x80;
  if (text.empty() || text.size() > kMostBytes) return false;
  // The lead byte has as many ones as there are bytes, then a zero, then the value's first bits.
  const unsigned zero_bit = 0x80U >> text.size();
  const unsigned ones = 0xFFU & ~(2 * zero_bit - 1);
  if ((byte_of(text[0]) & (ones | zero_bit)) != ones) return false;
  std::uint32_t value = byte_of(text[0]) & (zero_bit - 1);
  for (const char c : text.substr(1)) {
    if ((byte_of(c) & 0xC0U) != 0x80) return false;
    value = value << 6 | (byte_of(c) & 0x3FU);
  }
  constexpr std::uint32_t kFirstOfSize[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  return value >= kFirstOfSize[text.size()] && value <= 0x10FFFF && !surrogate;
}

std::size_t naive_character_size(std::string_view text) {
  for (std::size_t size = 1; size <= std::min(kMostBytes, text.size()); ++size) {
    if (naive_is_character(text.substr(0, size))) return size;
  }
  return 0;
}

std::string naive_valid_utf8(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t size = naive_character_size(bytes);
    out += size > 0 ? bytes.substr(0, size) : kReplacement;
    bytes.remove_prefix(std::max<std::size_t>(1, size));
  }
  return out;
}

std::string_view naive_without_half_character(std::string_view bytes) {
  for (std::size_t tail = std::min(kMostBytes - 1, bytes.size()); tail > 0; --tail) {
    const std::string_view begun = bytes.substr(bytes.size() - tail);
    if (byte_of(begun[0]) < 0xC0) continue;  // begins no character of several bytes
    for (std::size_t size = tail + 1; size <= kMostBytes; ++size) {
      for (int next = 0x80; next < 0xC0; ++next) {
        const std::string whole =
            std::string(begun) + std::string(size - tail, static_cast<char>(next));
        if (naive_is_character(whole)) return bytes.substr(0, bytes.size() - tail);
      }
    }
  }
  return bytes;
}

/// A run of the text, with the piece that it and its right neighbour would be.
struct NaiveTokenizer::Symbol {
  std::string text;
  bool user_defined = false;
  std::optional<TokenId> with_next = std::nullopt;
  float score = 0;  ///< with_next's
};

struct NaiveTokenizer::Merging {
  std::vector<Symbol> symbols;
  /// Unused pieces, with the neighbours that made them up when they were last seen.
  std::map<std::string, std::pair<std::string, std::string>> parts;
  Literal literal;
};

NaiveTokenizer::NaiveTokenizer(const VocabSpec& spec) : spec_(spec) {
  const bool marks = spec.tokenizer == TokenizerKind::kSentencePiece;
  if (!marks) byte_bpe_.emplace(spec);
  const auto add = [](Spellings& spellings, const std::string& text, TokenId id) {
    spellings[byte_of(text[0])].emplace_back(text, id);
  };
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const auto& [text, score, kind] = spec.tokens[i];
    const auto id = static_cast<TokenId>(i);
    if (text.empty()) continue;
    if (kind == TokenKind::kByte) {
      auto& slot = byte_tokens_[std::stoul(text.substr(3, 2), nullptr, 16)];
      if (!slot) slot = id;
    } else if (kind == TokenKind::kControl || kind == TokenKind::kUnknown) {
      add(special_, text, id);
    } else if (kind == TokenKind::kUserDefined) {
      const std::string marked = marks ? replaced(text, " ", kMark) : text;
      add(user_defined_, marked, id);
      pieces_.emplace(marked, id);
    } else {
      pieces_.emplace(text, id);
    }
  }
  for (std::size_t rank = 0; marks && rank < spec.merges.size(); ++rank) {
    const auto text = [&](TokenId id) { return spec.tokens[static_cast<std::size_t>(id)].text; };
    ranks_.emplace(std::pair(text(spec.merges[rank].left), text(spec.merges[rank].right)), rank);
  }
}

std::optional<TokenId> NaiveTokenizer::piece(std::string_view spelling) const {
  const auto found = pieces_.find(std::string(spelling));
  return found == pieces_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<TokenId> NaiveTokenizer::visible_piece(std::string_view spelling,
                                                     Literal literal) const {
  const auto id = piece(spelling);
  if (!id || spec_.tokens[static_cast<std::size_t>(*id)].kind != TokenKind::kUserDefined) return id;
  return std::ranges::find(literal, spelling) == literal.end() ? id : std::nullopt;
}

const std::pair<std::string, TokenId>* NaiveTokenizer::longest_at(const Spellings& spellings,
                                                                  std::string_view text,
                                                                  Literal literal) {
  const std::pair<std::string, TokenId>* longest = nullptr;
  for (const auto& entry : spellings[byte_of(text[0])]) {
    if (!text.starts_with(entry.first)) continue;
    if (std::ranges::find(literal, entry.first) != literal.end()) continue;
    if (longest == nullptr || entry.first.size() > longest->first.size()) longest = &entry;
  }
  return longest;
}

std::vector<TokenId> NaiveTokenizer::encode(std::string_view text, const EncodeOptions& options,
                                            EqualScores equal) const {
  std::vector<TokenId> ids;
  if (options.add_bos.value_or(spec_.add_bos) && spec_.bos) ids.push_back(*spec_.bos);
  std::string plain;  // since the last control token
  for (std::size_t at = 0; at < text.size();) {
    const auto* special =
        options.parse_special ? longest_at(special_, text.substr(at), {}) : nullptr;
    if (special == nullptr) {
      plain += text[at++];
      continue;
    }
    append_plain(plain, options, equal, ids);
    plain.clear();
    ids.push_back(special->second);
    at += special->first.size();
  }
  append_plain(plain, options, equal, ids);
  if (options.add_eos.value_or(spec_.add_eos) && spec_.eos) ids.push_back(*spec_.eos);
  return ids;
}

void NaiveTokenizer::append_plain(std::string_view text, const EncodeOptions& options,
                                  EqualScores equal, std::vector<TokenId>& ids) const {
  if (byte_bpe_) {
    append_byte_bpe(text, options, equal, ids);
  } else {
    append_sentencepiece(text, options, equal, ids);
  }
}

void NaiveTokenizer::append_byte_bpe(std::string_view text, const EncodeOptions& options,
                                     EqualScores equal, std::vector<TokenId>& ids) const {
  std::string plain;  // since the last user-defined token
  const auto give_out = [&] {
    byte_bpe_->append(plain, equal == EqualScores::kRightmost, ids);
    plain.clear();
  };
  while (!text.empty()) {
    const auto* found = longest_at(user_defined_, text, options.literal);
    if (found == nullptr) {
      plain += text[0];
      text.remove_prefix(1);
      continue;
    }
    give_out();
    ids.push_back(found->second);
    text.remove_prefix(found->first.size());
  }
  give_out();
}

/// User-defined tokens, the longest at each place, and characters; a byte that belongs to none is a
/// symbol by itself.
std::vector<NaiveTokenizer::Symbol> NaiveTokenizer::split(std::string_view text,
                                                          Literal literal) const {
  std::vector<Symbol> symbols;
  while (!text.empty()) {
    const auto* found = longest_at(user_defined_, text, literal);
    std::size_t size = found != nullptr ? found->first.size()
                                        : std::max<std::size_t>(1, naive_character_size(text));
    std::string newlines;
    while (newlines.size() < text.size() && text[newlines.size()] == '\n') newlines += '\n';
    const bool in_run =
        !symbols.empty() && !symbols.back().user_defined && symbols.back().text.ends_with('\n');
    if (found == nullptr && !ranks_.empty() && !in_run && visible_piece(newlines, literal))
      size = newlines.size();
    symbols.push_back({std::string(text.substr(0, size)), found != nullptr});
    text.remove_prefix(size);
  }
  return symbols;
}

void NaiveTokenizer::join_with_next(Merging& merging, std::size_t i) const {
  Symbol& left = merging.symbols[i];
  left.with_next.reset();
  if (i + 1 == merging.symbols.size()) return;
  const Symbol& right = merging.symbols[i + 1];
  if (left.user_defined || right.user_defined) return;
  left.with_next = visible_piece(left.text + right.text, merging.literal);
  const auto score = score_of(left.text, right.text);
  if (!score) left.with_next.reset();
  left.score = score.value_or(0);
  if (left.with_next &&
      spec_.tokens[static_cast<std::size_t>(*left.with_next)].kind == TokenKind::kUnused) {
    merging.parts[left.text + right.text] = {left.text, right.text};
  }
}

std::optional<float> NaiveTokenizer::score_of(const std::string& left,
                                              const std::string& right) const {
  if (ranks_.empty()) {
    const auto joint = piece(left + right);
    return joint ? spec_.tokens[static_cast<std::size_t>(*joint)].score : 0;
  }
  const auto found = ranks_.find({left, right});
  const bool meets_newlines = left.ends_with('\n') != right.starts_with('\n');
  if (found == ranks_.end() || meets_newlines) return std::nullopt;
  return -static_cast<float>(found->second);
}

/// The rules 3 to 8 for a vocabulary of SentencePiece's BPE.
void NaiveTokenizer::append_sentencepiece(std::string_view text, const EncodeOptions& options,
                                          EqualScores equal, std::vector<TokenId>& ids) const {
  if (text.empty()) return;
  const bool prefix = options.add_space_prefix.value_or(spec_.add_space_prefix);
  std::string marked(prefix ? kMark : std::string_view());
  marked += replaced(text, " ", kMark);
  Merging merging{split(marked, options.literal), {}, options.literal};
  std::vector<Symbol>& symbols = merging.symbols;
  for (std::size_t i = 0; i < symbols.size(); ++i) join_with_next(merging, i);
  while (true) {
    std::optional<std::size_t> best;
    float best_score = 0;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (!symbols[i].with_next) continue;
      const float score = symbols[i].score;
      const bool wins =
          score > best_score || (score == best_score && equal == EqualScores::kRightmost);
      if (best && !wins) continue;
      best = i;
      best_score = score;
    }
    if (!best) break;
    symbols[*best].text += symbols[*best + 1].text;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(*best) + 1);
    if (*best > 0) join_with_next(merging, *best - 1);
    join_with_next(merging, *best);
  }
  bool in_unknown_run = false;
  for (const Symbol& symbol : symbols) give_out(merging, symbol.text, in_unknown_run, ids);
}

void NaiveTokenizer::give_out(const Merging& merging, const std::string& spelling,
                              bool& in_unknown_run, std::vector<TokenId>& ids) const {
  if (const auto parts = merging.parts.find(spelling); parts != merging.parts.end()) {
    give_out(merging, parts->second.first, in_unknown_run, ids);
    give_out(merging, parts->second.second, in_unknown_run, ids);
    return;
  }
  const auto id = visible_piece(spelling, merging.literal);
  const bool usable = id && spec_.tokens[static_cast<std::size_t>(*id)].kind != TokenKind::kUnused;
  const bool unknown = !usable && !byte_tokens_[0];
  if (usable) {
    ids.push_back(*id);
  } else if (!unknown) {
    for (const char c : spelling) ids.push_back(*byte_tokens_[byte_of(c)]);
  } else if (!in_unknown_run) {
    ids.push_back(*spec_.unknown);
  }
  in_unknown_run = unknown;
}

std::string NaiveTokenizer::bytes_of(TokenId id) const {
  const auto& [text, score, kind] = spec_.tokens[static_cast<std::size_t>(id)];
  if (kind == TokenKind::kByte)
    return std::string(1, static_cast<char>(std::stoul(text.substr(3, 2), nullptr, 16)));
  if (!byte_bpe_) return replaced(text, kMark, " ");
  return kind == TokenKind::kUserDefined ? text : byte_bpe_->bytes_of(text);
}

std::string NaiveTokenizer::decode_bytes(std::span<const TokenId> ids,
                                         const DecodeOptions& options) const {
  std::string bytes;
  bool at_start = spec_.add_space_prefix && !options.continues_text;
  for (const TokenId id : ids) {
    const auto& [text, score, kind] = spec_.tokens[static_cast<std::size_t>(id)];
    if (kind == TokenKind::kControl) {
      if (options.render_special) bytes += text;
      continue;
    }
    if (text.empty()) continue;
    if (kind == TokenKind::kByte) {
      bytes += bytes_of(id);
    } else if (kind == TokenKind::kUnknown) {
      bytes += options.render_special ? std::string_view(text) : kUnknownText;
    } else {
      const std::string plain = bytes_of(id);
      bytes += at_start && plain[0] == ' ' ? plain.substr(1) : plain;
    }
    at_start = false;
  }
  return bytes;
}

}  // namespace llm
