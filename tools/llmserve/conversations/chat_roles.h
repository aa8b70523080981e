#pragma once

#include "engine/generation/chat_style.h"
#include "tools/llmserve/conversations/conversations.h"

namespace llm {

/// Which messages a template takes, and writes. The defaults are those of one that takes all.
struct ChatRoles {
  bool system_first = true;  ///< a system message before all others
  bool system_later = true;  ///< and one anywhere
  bool repeats = true;       ///< two messages of one role, one after the other
};

/// Found out by letting the template write conversations of words that no template has.
ChatRoles chat_roles(const ChatStyle& style);

/// Makes of the conversation one that the template takes. System messages that lead are one, with
/// an empty line between their texts. A later one that the template does not take, or would not
/// write, is said by the user: as part of the message behind it, or before it, if one is theirs.
/// Where there is no system role at all, the user's first message begins with its text.
void place_messages(const ChatRoles& roles, RequestedChat& chat);

}  // namespace llm
