#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace llm {

/// Lines kept from chat to chat.
inline constexpr std::size_t kHistoryLines = 1000;

/// $XDG_STATE_HOME/llmrun/history, by default ~/.local/state/llmrun/history; empty without a home.
std::string default_history_path();

/// The last lines of the file, oldest first; none when it cannot be read.
std::vector<std::string> read_history(const std::string& path);

/// Appends a line, so that chats at the same time lose none. Makes file (0600) and directories as
/// needed. @return whether it could
bool append_history(const std::string& path, const std::string& line);

}  // namespace llm
