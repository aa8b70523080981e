#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace llm {

// GPT-2's alphabet, in which byte-level vocabularies spell their tokens: a character for each byte.
// Bytes that are printable in Latin-1 (21-7E, A1-AC, AE-FF) are that character; the other 68, in
// ascending order, are U+0100 to U+0143, so that a space is U+0120. Source: bytes_to_unicode() in
// OpenAI's gpt-2/src/encoder.py.

/// The character of a byte, in UTF-8.
std::string_view spelling_of_byte(std::uint8_t byte);

/// `bytes` written in the alphabet.
std::string spelling_of_bytes(std::string_view bytes);

/// The bytes that `spelling` writes, or nothing if a character of it is not in the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

}  // namespace llm
