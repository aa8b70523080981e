#pragma once

#include <string>

#include "engine/chat/chat_template.h"

namespace llm::fuzz {

/// A conversation that has what templates look at: jinja_conversation.json.
const ChatInput& template_input();

/// What a template makes of it.
Result<std::string> rendered(std::string jinja);

}  // namespace llm::fuzz
