#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace llm {

/// What came from who types (or pipes) a line.
struct Line {
  enum class Kind {
    kText,
    kCancelled,  ///< Ctrl-C: what was typed so far is not wanted
    kEnd,        ///< end of input, a wish to leave, or a signal (GracefulInterrupt) that ends all
  };
  Kind kind = Kind::kText;
  std::string text = {};   ///< without the newline at its end
  bool is_quoted = false;  ///< of several lines, pasted or between lines of quotes: no command
};

/// Reads standard input line by line. Make a GracefulInterrupt around it: a signal ends a read.
class LineReader {
 public:
  virtual ~LineReader() = default;

  /// @param prompt  shown on stderr before a line that is typed
  /// Errors: kResource with both numbers for a line above Tokenizer::kMaxTextBytes, which is then
  /// read to its end; kIo.
  virtual Result<Line> read(const std::string& prompt) = 0;
};

/// Plain lines, as from a pipe. @param shows_prompt  for a terminal
std::unique_ptr<LineReader> make_plain_reader(bool shows_prompt);

/// A line that is edited, with history (libedit; docs/chat.md lists the keys). While the reader
/// lives, what is typed between two reads is not shown and waits for the next one, and the terminal
/// says where a pasted text begins and ends.
/// @param history_path  where lines are kept; empty: nowhere
/// @param commands  what Tab completes at the beginning of a line; elsewhere it completes paths
/// @pre stdin and stderr are terminals; use_utf8()
std::unique_ptr<LineReader> make_editing_reader(const std::string& history_path,
                                                std::vector<std::string> commands);

/// The one for the streams at hand: editing where stdin and stderr are terminals that can.
std::unique_ptr<LineReader> make_line_reader(const std::string& history_path,
                                             std::vector<std::string> commands);

/// A message: a line; a text of several lines that was pasted into one; lines that end with a
/// backslash, with the next one; or all lines between two lines of three double quotes.
Result<Line> read_message(LineReader& reader);

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
