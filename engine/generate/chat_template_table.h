#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "engine/generate/chat_template.h"

namespace llm {

/// Where a format puts the system message.
enum class SystemPlace { kOwnTurn, kFirstUser, kLastUser };

/// What a format strips of white space at both ends, as Python's str.strip() does.
enum class Strip {
  kNothing,
  kContents,  ///< each message, but for a system message inside a user's
  kTurn,      ///< the user's turn with the system message that opens it, and replies
};

/// What a format makes of an earlier reply.
enum class ReplyRule {
  kAsGiven,
  kNoLeadingLines,  ///< line breaks at its front go
  kNoThinking,      ///< the part up to "</think>" goes, but behind the user's last question
};

/// What stands around the contents of a conversation in one format.
struct Markup {
  ChatFormat format;
  std::string_view name;
  std::string_view system_begin = {};
  std::string_view system_end = {};
  std::optional<std::string_view> default_system = {};  ///< where the conversation has none
  std::string_view user_begin;
  std::string_view user_end;          ///< includes what asks for the reply
  std::string_view reply_begin = {};  ///< before an earlier reply; the model writes it by itself
  std::string_view reply_end;         ///< before the next user message
  SystemPlace system_place = SystemPlace::kOwnTurn;
  Strip strip = Strip::kNothing;
  ReplyRule reply_rule = ReplyRule::kAsGiven;
  /// Markers that its models have as tokens; other markers they read as text.
  std::array<std::string_view, 3> tokens;
  std::array<std::string_view, 2> stops;
};

const Markup& markup_of(ChatFormat format);

/// SmolLM3's markup once its system message says /no_think.
const Markup& smollm3_without_thinking();

/// Every marker in the markups that a vocabulary may have as a token of its own. None is a prefix
/// of another.
std::span<const std::string_view> chat_markers();

}  // namespace llm
