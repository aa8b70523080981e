#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace llm {

/// How a byte string begins, read as UTF-8.
struct Utf8Head {
  enum class Kind {
    kCharacter,   ///< a complete character of `size` bytes
    kIncomplete,  ///< the text ends inside a character; all `size` bytes so far are right
    kInvalid,     ///< the first byte begins no character; size = 1
  };
  Kind kind = Kind::kInvalid;
  std::size_t size = 1;
};

/// Examines the first character. Strict: overlong forms, surrogates and values above U+10FFFF are
/// invalid. Source: The Unicode Standard, table 3-7 (well-formed UTF-8 byte sequences).
/// @pre !text.empty()
Utf8Head utf8_head(std::string_view text);

/// The number of a character. @pre `character` is one, in well-formed UTF-8
char32_t utf8_code_point(std::string_view character);

/// Appends the character of a number. @pre it is one: at most U+10FFFF, no surrogate
void append_utf8(char32_t code, std::string& out);

/// The number of bytes before the first one that belongs to no character; text.size() if all do.
std::size_t valid_utf8_size(std::string_view text);

/// Whether all of `text` is well-formed UTF-8.
bool is_valid_utf8(std::string_view text);

/// Appends `text` to `out`, each byte that begins no character replaced by U+FFFD; an incomplete
/// character at the end counts as invalid bytes.
void append_valid_utf8(std::string_view text, std::string& out);

/// The number of bytes before a character that the end of `text` cuts off (text.size() if none is).
std::size_t complete_utf8_size(std::string_view text);

}  // namespace llm
