#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tokenizer/sentencepiece/bpe.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/vocab_check.h"

namespace llm {
namespace {

// What SentencePiece prints for a token whose text is lost.
constexpr std::string_view kUnknownText = " \xE2\x81\x87 ";

}  // namespace

Tokenizer::Tokenizer(VocabSpec spec) : spec_(std::move(spec)), table_(spec_) {}

Result<Tokenizer> Tokenizer::create(VocabSpec spec) {
  LLM_RETURN_IF_ERROR(check_vocab(spec));
  return Tokenizer(std::move(spec));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  LLM_CHECK(text.size() <= kMaxTextBytes);
  std::vector<TokenId> ids;
  if (options.add_bos.value_or(spec_.add_bos) && spec_.bos) ids.push_back(*spec_.bos);
  if (options.parse_special) {
    append_parsed(text, options, ids);
  } else {
    append_text(text, options, ids);
  }
  if (options.add_eos.value_or(spec_.add_eos) && spec_.eos) ids.push_back(*spec_.eos);
  return ids;
}

void Tokenizer::append_text(std::string_view text, const EncodeOptions& options,
                            std::vector<TokenId>& ids) const {
  if (text.empty()) return;
  const bool prefix = options.add_space_prefix.value_or(spec_.add_space_prefix);
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 2);
  if (prefix) escaped += kSpaceMark;
  append_escaped(text, escaped);
  append_bpe(table_, {.unknown = spec_.unknown, .literal = options.literal}, escaped, ids);
}

void Tokenizer::append_parsed(std::string_view text, const EncodeOptions& options,
                              std::vector<TokenId>& ids) const {
  std::size_t begin = 0;  // of the plain text not yet encoded
  std::size_t at = 0;
  while (at < text.size()) {
    const auto match = table_.special().longest_prefix(text.substr(at));
    if (!match) {
      ++at;
      continue;
    }
    append_text(text.substr(begin, at - begin), options, ids);
    ids.push_back(match->id);
    at += match->size;
    begin = at;
  }
  append_text(text.substr(begin), options, ids);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  StreamDecoder decoder(*this, options);
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id);
  text += decoder.flush();
  return text;
}

const std::string& Tokenizer::spelling(TokenId id) const {
  LLM_CHECK(contains(id));
  return spec_.tokens[static_cast<std::size_t>(id)].text;
}

std::string Tokenizer::piece_text(TokenId id, bool render_special) const {
  const std::string& text = spelling(id);
  switch (kind(id)) {
    case TokenKind::kByte:
      return std::string(1, table_.byte_of(id));
    case TokenKind::kControl:
      return render_special ? text : std::string();
    case TokenKind::kUnknown:
      return render_special ? text : std::string(kUnknownText);
    case TokenKind::kNormal:
    case TokenKind::kUserDefined:
    case TokenKind::kUnused:
      break;
  }
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = std::min(text.find(kSpaceMark, at), text.size());
    plain.append(text, at, mark - at);
    if (mark < text.size()) plain += ' ';
    at = mark + kSpaceMark.size();
  }
  return plain;
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  return std::find(spec_.end_of_generation.begin(), spec_.end_of_generation.end(), id) !=
         spec_.end_of_generation.end();
}

}  // namespace llm
