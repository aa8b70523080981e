#pragma once

#include <string>
#include <string_view>

namespace llm {

/// When messages and results are coloured.
enum class Color { kAuto, kAlways, kNever };

/// Makes spdlog's default logger write `TOOL: level: message` to stderr. Warnings are shown by
/// default; each step of `verbosity` shows one level more (info, debug, trace), -1 errors only.
/// Log with spdlog::warn(), spdlog::info(), spdlog::debug(). A message that cannot be written is
/// lost and nothing else happens.
void setup_log(const std::string& tool, int verbosity, Color color);

/// Writes all of `text` to stderr if it can. Every message that is not logged goes through here:
/// a closed or full stderr changes neither results nor exit codes.
void write_message(std::string_view text) noexcept;

/// Writes `TOOL: error: TEXT`, in the log's look.
void write_error(std::string_view tool, std::string_view text) noexcept;

/// Whether stderr is a terminal that understands cursor movement: TERM is set and is not "dumb".
bool stderr_is_terminal();
/// As --color says; by default on such a terminal, unless NO_COLOR is set (no-color.org).
bool stderr_takes_color();
/// The same of stdout, for results.
bool stdout_takes_color();

}  // namespace llm
