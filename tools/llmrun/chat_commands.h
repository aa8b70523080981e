#pragma once

#include <string>

#include "base/result.h"
#include "tools/llmrun/chat.h"

namespace llm {

/// A typed line that is a command: it starts with a slash. Two slashes begin a message that starts
/// with one.
bool is_command(const std::string& line);

/// Runs one. One that is unknown or lacks its argument is told on stderr.
/// Errors: what ends the chat.
Status run_command(Chat& chat, const std::string& line);

/// What /help prints.
std::string command_help();

}  // namespace llm
