#include "engine/model/piece_text.h"

#include <fmt/format.h>

#include "tokenizer/utf8.h"

namespace llm {
namespace {

/// The value of an upper-case hex digit, or 16.
unsigned digit_value(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return 16;
}

}  // namespace

std::optional<unsigned> byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  const unsigned high = digit_value(piece[3]);
  const unsigned low = digit_value(piece[4]);
  if (high > 15 || low > 15) return std::nullopt;
  return high * 16 + low;
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    if (head.kind != Utf8Head::Kind::kCharacter) return false;
    text.remove_prefix(head.size);
  }
  return true;
}

std::string quoted(std::string_view text, std::size_t limit) {
  const std::string_view shown = text.substr(0, complete_utf8_size(text.substr(0, limit)));
  const bool printable = is_valid_utf8(shown);
  std::string out(1, '"');
  for (const char c : shown) {
    const auto byte = static_cast<unsigned char>(c);
    if (!printable || byte < 0x20 || byte == 0x7F || byte == '"' || byte == '\\') {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (shown.size() < text.size()) out += "...";
  out += '"';
  return out;
}

}  // namespace llm
