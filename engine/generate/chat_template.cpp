#include "engine/generate/chat_template.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace llm {
namespace {

/// What stands around the contents. Sources: the chat templates in the tokenizer configurations of
/// TinyLlama-1.1B-Chat-v1.0, Llama-2-7b-chat-hf, Qwen1.5 and Meta-Llama-3-8B-Instruct.
struct Markup {
  ChatFormat format;
  std::string_view name;
  std::string_view system_begin;
  std::string_view system_end;
  std::string_view user_begin;
  std::string_view user_end;     ///< includes what asks for the reply
  std::string_view reply_begin;  ///< before an earlier reply; the model writes it by itself
  std::string_view reply_end;    ///< before the next user message
  bool system_in_user;           ///< the system message stands inside the first user message
  std::array<std::string_view, 2> stops;
};

constexpr std::array<Markup, 4> kMarkups = {{
    {ChatFormat::kZephyr,
     "zephyr",
     "<|system|>\n",
     "</s>\n",
     "<|user|>\n",
     "</s>\n<|assistant|>\n",
     "",
     "</s>\n",
     false,
     {"</s>", "<|user|>"}},
    {ChatFormat::kLlama2,
     "llama2",
     "<<SYS>>\n",
     "\n<</SYS>>\n\n",
     "[INST] ",
     " [/INST]",
     " ",
     " </s><s>",
     true,
     {"</s>", "[INST]"}},
    {ChatFormat::kChatMl,
     "chatml",
     "<|im_start|>system\n",
     "<|im_end|>\n",
     "<|im_start|>user\n",
     "<|im_end|>\n<|im_start|>assistant\n",
     "",
     "<|im_end|>\n",
     false,
     {"<|im_end|>", "<|im_start|>"}},
    {ChatFormat::kLlama3,
     "llama3",
     "<|start_header_id|>system<|end_header_id|>\n\n",
     "<|eot_id|>",
     "<|start_header_id|>user<|end_header_id|>\n\n",
     "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     "",
     "<|eot_id|>",
     false,
     {"<|eot_id|>", "<|start_header_id|>"}},
}};

constexpr std::array kFormats = {ChatFormat::kZephyr, ChatFormat::kLlama2, ChatFormat::kChatMl,
                                 ChatFormat::kLlama3};

/// Every marker in the markups that a vocabulary may have as a token of its own. None is a prefix
/// of another.
constexpr std::array<std::string_view, 14> kMarkers = {
    "<s>",
    "</s>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "<</SYS>>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
};

const Markup& markup_of(ChatFormat format) {
  return *std::ranges::find(kMarkups, format, &Markup::format);
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
          kMarkers, [text](std::string_view candidate) { return text.starts_with(candidate); });
      const auto id = marker == kMarkers.end() ? std::nullopt : special(*marker);
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
  std::optional<TokenId> special(std::string_view spelling) const {
    const auto id = tokenizer_.find(spelling);
    if (!id) return std::nullopt;
    const TokenKind kind = tokenizer_.kind(*id);
    return kind == TokenKind::kControl || kind == TokenKind::kUserDefined ? id : std::nullopt;
  }

  Status encode_waiting() {
    if (waiting_.empty()) return Ok{};
    if (waiting_.size() > Tokenizer::kMaxTextBytes) {
      return Error{.code = ErrorCode::kResource,
                   .field = "chat",
                   .message = fmt::format("found {} bytes of text, need at most {}",
                                          waiting_.size(), Tokenizer::kMaxTextBytes)};
    }
    EncodeOptions options;
    options.add_bos = false;
    options.add_eos = false;
    if (!after_special_) options.add_space_prefix = false;
    // Markers of the markup that are tokens have become ids in add_markup: what is left of them in
    // the text was written by somebody else.
    options.literal = kMarkers;
    const std::vector<TokenId> ids = tokenizer_.encode(waiting_, options);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    waiting_.clear();
    after_special_ = false;
    return Ok{};
  }

  const Tokenizer& tokenizer_;
  bool after_special_;
  std::string waiting_;
  std::vector<TokenId> ids_;
};

}  // namespace

std::span<const ChatFormat> all_chat_formats() { return kFormats; }

std::string_view chat_format_name(ChatFormat format) { return markup_of(format).name; }

std::optional<ChatFormat> recognize_chat_format(std::string_view jinja) {
  const auto has = [jinja](std::string_view marker) {
    return jinja.find(marker) != std::string_view::npos;
  };
  if (has("<|im_start|>")) return ChatFormat::kChatMl;
  if (has("<|start_header_id|>")) return ChatFormat::kLlama3;
  if (has("[INST]") && has("<<SYS>>")) return ChatFormat::kLlama2;
  // Phi-3 uses the same headings but ends its turns with <|end|>.
  if (has("<|user|>") && has("eos_token") && !has("<|end|>")) return ChatFormat::kZephyr;
  return std::nullopt;
}

std::vector<ChatPart> format_chat(ChatFormat format, std::span<const ChatMessage> messages,
                                  std::size_t n_earlier) {
  using Role = ChatMessage::Role;
  LLM_CHECK(!messages.empty() && messages.back().role == Role::kUser);
  const Markup& markup = markup_of(format);
  std::vector<ChatPart> parts;
  const auto add_markup = [&](std::string_view text) {
    if (!text.empty()) parts.push_back({std::string(text), true});
  };
  if (n_earlier > 0) add_markup(markup.reply_end);
  const ChatMessage* inner_system = nullptr;
  const auto add_system = [&](const ChatMessage& message) {
    add_markup(markup.system_begin);
    parts.push_back({message.content, false});
    add_markup(markup.system_end);
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    switch (message.role) {
      case Role::kSystem:
        LLM_CHECK(n_earlier + i == 0);
        if (markup.system_in_user) {
          inner_system = &message;
        } else {
          add_system(message);
        }
        break;
      case Role::kUser:
        add_markup(markup.user_begin);
        if (inner_system != nullptr) add_system(*std::exchange(inner_system, nullptr));
        parts.push_back({message.content, false});
        add_markup(markup.user_end);
        break;
      case Role::kAssistant:
        add_markup(markup.reply_begin);
        parts.push_back({message.content, false});
        add_markup(markup.reply_end);
        break;
    }
  }
  return parts;
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

std::vector<std::string> reply_ends(ChatFormat format) {
  const auto& stops = markup_of(format).stops;
  return {stops.begin(), stops.end()};
}

}  // namespace llm
