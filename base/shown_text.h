#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace llm {

/// Text that others wrote (names, keys and templates in files, paths, tokens) on its way to a
/// person. Whatever prints such text takes it through here; data (JSON, generated text in a file)
/// stays as it is.

/// About a line.
inline constexpr std::size_t kLineBytes = 160;

/// `text` as one line that a terminal, a log and a report show as it is. These become escapes:
/// control characters (\n, \t, \r, else \x1b), bytes that are no UTF-8 (\xff), and characters that
/// are invisible or reorder their neighbours (\u202e): C1, bidi controls, zero-width characters,
/// line separators, tags. Longer than `limit` bytes, it is cut between characters and its size
/// named: "abc... (65536 bytes)". A text without these is unchanged, so cleaning twice is harmless.
std::string shown(std::string_view text, std::size_t limit = kLineBytes);

/// The same in double quotes, with `"` and `\` escaped, cut to `limit` bytes and "...".
std::string quoted(std::string_view text, std::size_t limit = 40);

/// Generated text for a terminal: line breaks, tabs and the marks and joiners that scripts need
/// stay; what could move the cursor, change the terminal's state or reorder text becomes an escape.
/// @pre no piece of a stream ends inside a character
std::string terminal_text(std::string_view text);

}  // namespace llm
