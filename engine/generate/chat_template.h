#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace llm {

/// How a family of models was taught to see a conversation (docs/chat.md shows each).
enum class ChatFormat {
  kZephyr,
  kLlama2,
  kChatMl,
  kQwen2,
  kQwen25,
  kQwen3,
  kSmolLm2,
  kSmolLm3,
  kLlama3,
  kLlama31,
  kMistralNemo,
  kGemma,
};

/// All of them, and their names: "zephyr", "llama2", "chatml", ...
std::span<const ChatFormat> all_chat_formats();
std::string_view chat_format_name(ChatFormat format);

/// Recognises the format by texts in a file's Jinja template; the template is never run.
std::optional<ChatFormat> recognize_chat_format(std::string_view jinja);

struct ChatMessage {
  enum class Role { kSystem, kUser, kAssistant };
  Role role;
  std::string content;
};

/// A part of a formatted conversation. Markers in markup become special tokens where the vocabulary
/// has them, as control or as user-defined tokens; content is text and never becomes a control
/// token, nor a user-defined one that is a marker of any format.
struct ChatPart {
  std::string text;
  bool is_markup;
  /// This part is the conversation's n-th reply, as it was given: the ids that the model wrote may
  /// stand for it. A reply that the format changes has no such part.
  std::optional<std::size_t> reply = {};
};

/// Formats a conversation as its model's template renders it without tools, and asks for the
/// assistant's reply. BOS is the vocabulary's and no part.
/// @pre messages end with the user's; a system message is only the first
/// Cost: linear in the text.
std::vector<ChatPart> format_chat(ChatFormat format, std::span<const ChatMessage> messages);

/// Whether `format` can be written in this vocabulary: nothing, or the message of an Error that
/// names the format and a marker that its models have as a token and this vocabulary has not.
std::optional<std::string> chat_format_fault(const Tokenizer& tokenizer, ChatFormat format);

/// Ids of the parts. Text between two special tokens is encoded as one, so that tokens meet as they
/// did in training; the vocabulary's dummy prefix follows each special token.
/// @param is_start  the conversation starts here: BOS if the vocabulary wants it
/// Errors: kResource with both numbers for text above Tokenizer::kMaxTextBytes between two special
/// tokens.
Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer,
                                         std::span<const ChatPart> parts, bool is_start);

/// Ids of a reply that stands behind the part that asks for it, as if the model had written it.
/// Errors: as encode_chat.
Result<std::vector<TokenId>> encode_reply(const Tokenizer& tokenizer, ChatFormat format,
                                          std::string_view reply);

/// Spellings that end a reply in this format: special tokens where the vocabulary has them, stop
/// strings where it has not.
std::vector<std::string> reply_ends(ChatFormat format);

}  // namespace llm
