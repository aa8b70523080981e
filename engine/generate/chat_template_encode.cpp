#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "engine/generate/chat_template.h"
#include "engine/generate/chat_template_table.h"

namespace llm {
namespace {

std::optional<TokenId> find_marker(const Tokenizer& tokenizer, std::string_view spelling) {
  const auto id = tokenizer.find(spelling);
  if (!id) return std::nullopt;
  const TokenKind kind = tokenizer.kind(*id);
  return kind == TokenKind::kControl || kind == TokenKind::kUserDefined ? id : std::nullopt;
}

/// Collects ids; text waits until the next special token so that it is encoded in one piece.
class PartEncoder {
 public:
  PartEncoder(const Tokenizer& tokenizer, bool is_start)
      : tokenizer_(tokenizer), after_special_(is_start) {
    if (is_start) ids_ = tokenizer.encode("");  // BOS, if any
  }

  void add_text(std::string_view text) { waiting_ += text; }

  Status add_markup(std::string_view text) {
    while (!text.empty()) {
      const auto marker = std::ranges::find_if(
          markers_, [text](std::string_view candidate) { return text.starts_with(candidate); });
      const auto id = marker == markers_.end() ? std::nullopt : find_marker(tokenizer_, *marker);
      if (id) {
        LLM_RETURN_IF_ERROR(encode_waiting());
        ids_.push_back(*id);
        after_special_ = true;
        text.remove_prefix(marker->size());
      } else {
        waiting_ += text.front();
        text.remove_prefix(1);
      }
    }
    return Ok{};
  }

  Result<std::vector<TokenId>> finish() {
    LLM_RETURN_IF_ERROR(encode_waiting());
    return std::move(ids_);
  }

 private:
  Status encode_waiting() {
    if (waiting_.empty()) return Ok{};
    if (waiting_.size() > Tokenizer::kMaxTextBytes) {
      return Error{ErrorCode::kResource, "chat",
                   fmt::format("found {} bytes of text, need at most {}", waiting_.size(),
                               Tokenizer::kMaxTextBytes)};
    }
    EncodeOptions options;
    options.add_bos = false;
    options.add_eos = false;
    if (!after_special_) options.add_space_prefix = false;
    // Markers of the markup that are tokens have become ids in add_markup: what is left of them in
    // the text was written by somebody else.
    options.literal = markers_;
    const std::vector<TokenId> ids = tokenizer_.encode(waiting_, options);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    waiting_.clear();
    after_special_ = false;
    return Ok{};
  }

  const Tokenizer& tokenizer_;
  std::span<const std::string_view> markers_ = chat_markers();
  bool after_special_;
  std::string waiting_;
  std::vector<TokenId> ids_;
};

}  // namespace

std::optional<std::string> chat_format_fault(const Tokenizer& tokenizer, ChatFormat format) {
  const Markup& markup = markup_of(format);
  for (const std::string_view marker : markup.tokens) {
    if (marker.empty() || find_marker(tokenizer, marker)) continue;
    return fmt::format("found {}, whose marker {} is no token of this vocabulary", markup.name,
                       marker);
  }
  return std::nullopt;
}

Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer,
                                         std::span<const ChatPart> parts, bool is_start) {
  PartEncoder encoder(tokenizer, is_start);
  for (const ChatPart& part : parts) {
    if (part.is_markup) {
      LLM_RETURN_IF_ERROR(encoder.add_markup(part.text));
    } else {
      encoder.add_text(part.text);
    }
  }
  return encoder.finish();
}

Result<std::vector<TokenId>> encode_reply(const Tokenizer& tokenizer, ChatFormat format,
                                          std::string_view reply) {
  const std::vector<ChatPart> parts = {{std::string(markup_of(format).reply_begin), false},
                                       {std::string(reply), false}};
  return encode_chat(tokenizer, parts, false);
}

}  // namespace llm
