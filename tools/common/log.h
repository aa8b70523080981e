#ifndef LLM_TOOLS_COMMON_LOG_H_
#define LLM_TOOLS_COMMON_LOG_H_

#include <string>

namespace llm {

/// Makes spdlog's default logger write `TOOL: level: message` to stderr. Warnings are shown by
/// default; each step of `verbosity` shows one level more (info, debug, trace), -1 errors only.
/// Log with spdlog::warn(), spdlog::info(), spdlog::debug().
void setup_log(const std::string& tool, int verbosity);

/// Whether stderr is a terminal that understands cursor movement: TERM is set and is not "dumb".
bool stderr_is_terminal();
/// That, and NO_COLOR is unset or empty (no-color.org): messages may be coloured.
bool stderr_takes_color();
/// The same of stdout, for results.
bool stdout_takes_color();

}  // namespace llm

#endif  // LLM_TOOLS_COMMON_LOG_H_
