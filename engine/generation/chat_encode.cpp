#include "engine/generation/chat_encode.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace llm {
namespace {

/// Whatever the template: a user who types one of these means to trick a model.
constexpr std::string_view kUsualMarkers =
    "[INST][/INST]<<SYS>><</SYS>><start_of_turn><end_of_turn><think></think>"
    "<tool_call></tool_call><tool_response></tool_response>";

/// Collects ids; text waits until the next special token so that it is encoded in one piece.
class PartEncoder {
 public:
  PartEncoder(const Tokenizer& tokenizer, const ChatMarkers& markers, bool is_start)
      : tokenizer_(tokenizer), markers_(markers), after_special_(is_start) {
    if (is_start) ids_ = tokenizer.encode("", {.add_eos = false});  // BOS, if any
    n_start_ = ids_.size();
  }

  void add_text(std::string_view text) {
    waiting_ += text;
    is_in_message_ = true;
  }

  Status add_markup(std::string_view text) {
    while (!text.empty()) {
      const auto marker = markers_.at_start(text);
      if (!marker) {
        waiting_ += text.front();
        text.remove_prefix(1);
        continue;
      }
      text.remove_prefix(marker->spelling.size());
      const bool is_bos_again =
          n_start_ > 0 && ids_.size() == n_start_ && waiting_.empty() && ids_[0] == marker->id;
      n_start_ = 0;
      if (is_bos_again) continue;
      LLM_RETURN_IF_ERROR(encode_waiting());
      if (std::exchange(is_in_message_, false)) message_ends_.push_back(ids_.size());
      ids_.push_back(marker->id);
      after_special_ = true;
    }
    return Ok{};
  }

  Result<std::vector<TokenId>> finish() {
    LLM_RETURN_IF_ERROR(encode_waiting());
    return std::move(ids_);
  }
  const std::vector<std::size_t>& message_ends() const { return message_ends_; }

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
    // Markers of the markup have become ids in add_markup: what is left of them in the text was
    // written by somebody else.
    options.literal = markers_.literal();
    const std::vector<TokenId> ids = tokenizer_.encode(waiting_, options);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    waiting_.clear();
    after_special_ = false;
    return Ok{};
  }

  const Tokenizer& tokenizer_;
  const ChatMarkers& markers_;
  bool after_special_;
  std::size_t n_start_ = 0;  ///< of ids_, until anything follows them
  std::string waiting_;
  std::vector<TokenId> ids_;
  bool is_in_message_ = false;  ///< contents came since the last special token
  std::vector<std::size_t> message_ends_;
};

}  // namespace

ChatMarkers::ChatMarkers(const Tokenizer& tokenizer, std::string_view jinja) {
  for (std::size_t i = 0; i < tokenizer.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view spelling = tokenizer.spelling(id);
    const TokenKind kind = tokenizer.kind(id);
    if (spelling.empty() || (kind != TokenKind::kControl && kind != TokenKind::kUserDefined))
      continue;
    if (kind == TokenKind::kUserDefined) {
      const bool has_form = spelling.starts_with("<|") && spelling.ends_with("|>");
      const bool is_blank = spelling.find_first_not_of(" \t\n\r") == std::string_view::npos;
      const bool is_spelled = jinja.find(spelling) != std::string_view::npos ||
                              kUsualMarkers.find(spelling) != std::string_view::npos;
      if (!has_form && (is_blank || !is_spelled)) continue;
      literal_.push_back(spelling);
    }
    markers_.push_back({spelling, id});
  }
  std::ranges::stable_sort(markers_, [](const Marker& a, const Marker& b) {
    return std::tuple(a.spelling[0], b.spelling.size()) <
           std::tuple(b.spelling[0], a.spelling.size());
  });
}

std::optional<ChatMarkers::Marker> ChatMarkers::at_start(std::string_view text) const {
  const auto same = std::ranges::equal_range(markers_, text.front(), {},
                                             [](const Marker& m) { return m.spelling[0]; });
  const auto at =
      std::ranges::find_if(same, [text](const Marker& m) { return text.starts_with(m.spelling); });
  return at == same.end() ? std::nullopt : std::optional(*at);
}

Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer, const ChatMarkers& markers,
                                         std::span<const ChatPart> parts, bool is_start,
                                         std::vector<std::size_t>* message_ends) {
  PartEncoder encoder(tokenizer, markers, is_start);
  for (const ChatPart& part : parts) {
    if (part.is_markup) {
      LLM_RETURN_IF_ERROR(encoder.add_markup(part.text));
    } else {
      encoder.add_text(part.text);
    }
  }
  LLM_TRY(auto ids, encoder.finish());
  if (message_ends != nullptr) *message_ends = encoder.message_ends();
  return ids;
}

}  // namespace llm
