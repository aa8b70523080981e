#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace llm {

/// Makes the C library know the characters of UTF-8, also where the environment names no locale.
/// Only the type of characters: numbers keep their decimal points.
void use_utf8();

/// Text that comes piece by piece and is shown at once on a terminal, with lines broken between
/// words: a word that turns out too long for its line is taken back and begins the next one. A word
/// as long as a line is cut by the terminal; wide characters may stand at either side of a break.
///
/// @pre use_utf8(); the cursor is at the start of a line, or of what write() was given, at first
class WordWrap {
 public:
  /// What to send to the terminal for `text`.
  /// @param text     whole characters without controls but newline and tab (terminal_text())
  /// @param columns  of the terminal now; 0: unknown, nothing is broken
  std::string add(std::string_view text, std::size_t columns);

 private:
  void add_character(std::string_view character, std::size_t width, std::size_t columns);
  void break_line();

  std::string out_;
  std::string word_;  ///< of the line at hand, after its last space
  std::size_t word_width_ = 0;
  std::size_t column_ = 0;
};

/// Columns of the terminal that stdout is, if it can move its cursor; else 0.
std::size_t stdout_columns();

}  // namespace llm
