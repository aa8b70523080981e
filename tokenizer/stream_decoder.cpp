#include "tokenizer/stream_decoder.h"

#include "base/check.h"
#include "base/utf8.h"

namespace llm {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options)
    : tokenizer_(&tokenizer),
      options_(options),
      strip_space_(tokenizer.spec().add_space_prefix && !options.continues_text) {}

std::string StreamDecoder::push(TokenId id) {
  LLM_CHECK(tokenizer_->contains(id));
  std::string piece = tokenizer_->piece_text(id, options_.render_special);
  const TokenKind kind = tokenizer_->kind(id);
  if (strip_space_ && !piece.empty() && kind != TokenKind::kControl) {
    strip_space_ = false;
    const bool spelled = kind != TokenKind::kByte && kind != TokenKind::kUnknown;
    if (spelled && piece.front() == ' ') piece.erase(0, 1);
  }
  pending_ += piece;
  return take(complete_utf8_size(pending_));
}

std::string StreamDecoder::flush() { return take(pending_.size()); }

std::string StreamDecoder::take(std::size_t size) {
  std::string text;
  if (options_.keep_invalid) {
    text = pending_.substr(0, size);
  } else {
    append_valid_utf8(std::string_view(pending_).substr(0, size), text);
  }
  pending_.erase(0, size);
  return text;
}

}  // namespace llm
