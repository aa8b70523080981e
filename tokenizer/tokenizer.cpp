#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tokenizer/byte_bpe/byte_bpe.h"
#include "tokenizer/sentencepiece/sentencepiece.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/vocab_check.h"

namespace llm {
namespace {

// What SentencePiece prints for a token whose text is lost.
constexpr std::string_view kUnknownText = " \xE2\x81\x87 ";

}  // namespace

Tokenizer::Tokenizer(VocabSpec spec, std::unique_ptr<TextModel> model)
    : spec_(std::move(spec)), model_(std::move(model)) {
  std::vector<PrefixMatcher::Token> special;
  for (std::size_t i = 0; i < size(); ++i) {
    const auto& [text, score, kind] = spec_.tokens[i];
    if (kind != TokenKind::kControl && kind != TokenKind::kUnknown) continue;
    if (!text.empty()) special.push_back({text, static_cast<TokenId>(i)});
  }
  special_ = PrefixMatcher(std::move(special));
}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::create(VocabSpec spec) {
  LLM_RETURN_IF_ERROR(check_vocab(spec));
  std::unique_ptr<TextModel> model;
  if (spec.tokenizer == TokenizerKind::kByteBpe) {
    LLM_TRY(model, ByteBpe::create(spec));
  } else {
    model = std::make_unique<SentencePiece>(spec);
  }
  return Tokenizer(std::move(spec), std::move(model));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  LLM_CHECK(text.size() <= kMaxTextBytes);
  std::vector<TokenId> ids;
  if (options.add_bos.value_or(spec_.add_bos) && spec_.bos) ids.push_back(*spec_.bos);
  const auto on_text = [&](std::string_view plain) { model_->append_text(plain, options, ids); };
  if (options.parse_special) {
    cut_out(special_, text, {}, on_text, [&ids](TokenId id) { ids.push_back(id); });
  } else if (!text.empty()) {
    on_text(text);
  }
  if (options.add_eos.value_or(spec_.add_eos) && spec_.eos) ids.push_back(*spec_.eos);
  return ids;
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
  if (kind(id) == TokenKind::kControl) return render_special ? text : std::string();
  if (kind(id) == TokenKind::kUnknown) return render_special ? text : std::string(kUnknownText);
  return model_->bytes_of(id);
}

std::optional<TokenId> Tokenizer::find(std::string_view spelling) const {
  return model_->find(spelling);
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  return std::find(spec_.end_of_generation.begin(), spec_.end_of_generation.end(), id) !=
         spec_.end_of_generation.end();
}

}  // namespace llm
