#ifndef LLM_ENGINE_MODEL_PIECE_TEXT_H_
#define LLM_ENGINE_MODEL_PIECE_TEXT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace llm {

/// The byte that a piece "<0xAB>" stands for, or nothing. SentencePiece writes two upper-case
/// digits.
std::optional<unsigned> byte_of_piece(std::string_view piece);

/// Whether all of `text` is well-formed UTF-8.
bool is_valid_utf8(std::string_view text);

/// The first `limit` bytes (at a character's end) of text from a file in double quotes, safe for
/// one line of a log: control characters, and everything when it is not UTF-8, as \xNN.
std::string quoted(std::string_view text, std::size_t limit = 40);

}  // namespace llm

#endif  // LLM_ENGINE_MODEL_PIECE_TEXT_H_
