#include "base/shown_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace llm {
namespace {

struct Range {
  std::uint32_t first;
  std::uint32_t last;
  bool in_text;  ///< generated text may need it: joiners, direction marks, line separators
};

/// Control (Cc), format (Cf) and separator (Zl, Zp) characters of the Unicode Standard, without
/// the visible ones of Cf (Arabic, Kaithi and Egyptian signs), and letters drawn as nothing.
constexpr std::array kUnseen = {
    Range{0x00, 0x1F, false},      Range{0x7F, 0x9F, false},      Range{0xAD, 0xAD, true},
    Range{0x61C, 0x61C, true},     Range{0x115F, 0x1160, true},   Range{0x180B, 0x180F, true},
    Range{0x200B, 0x200F, true},   Range{0x2028, 0x2029, true},   Range{0x202A, 0x202E, false},
    Range{0x2060, 0x2065, true},   Range{0x2066, 0x2069, false},  Range{0x206A, 0x206F, true},
    Range{0x3164, 0x3164, true},   Range{0xFEFF, 0xFEFF, true},   Range{0xFFA0, 0xFFA0, true},
    Range{0xFFF9, 0xFFFB, true},   Range{0x1BCA0, 0x1BCA3, true}, Range{0x1D173, 0x1D17A, true},
    Range{0xE0000, 0xE0FFF, true},
};

std::string escape(std::uint32_t value) {
  if (value == '\n') return "\\n";
  if (value == '\t') return "\\t";
  if (value == '\r') return "\\r";
  if (value < 0x80) return fmt::format("\\x{:02x}", value);
  return value < 0x10000 ? fmt::format("\\u{:04x}", value) : fmt::format("\\U{:08x}", value);
}

enum class Place { kLine, kQuotes, kTerminal };

bool stays(std::uint32_t value, Place place) {
  if (place == Place::kQuotes && (value == '"' || value == '\\')) return false;
  if (place == Place::kTerminal && (value == '\n' || value == '\t')) return true;
  const auto* range =
      std::ranges::find_if(kUnseen, [&](const Range& r) { return value <= r.last; });
  if (range == kUnseen.end() || value < range->first) return true;
  return place == Place::kTerminal && range->in_text;
}

/// One character, or one byte that begins none, as the place shows it.
std::string clean(std::string_view character, bool valid, Place place) {
  if (!valid) return fmt::format("\\x{:02x}", static_cast<unsigned char>(character[0]));
  const std::uint32_t value = utf8_code_point(character);
  if (stays(value, place)) return std::string(character);
  if (value == '"' || value == '\\') return fmt::format("\\{}", character);
  return escape(value);
}

/// The clean form of as much of `text` as fits `limit` bytes; `text` keeps the rest.
std::string take_clean(std::string_view& text, std::size_t limit, Place place) {
  std::string out;
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    const bool valid = head.kind == Utf8Head::Kind::kCharacter;
    const std::size_t size = valid ? head.size : 1;
    const std::string next = clean(text.substr(0, size), valid, place);
    if (next.size() > limit - out.size()) break;
    out += next;
    text.remove_prefix(size);
  }
  return out;
}

}  // namespace

std::string shown(std::string_view text, std::size_t limit) {
  const std::size_t size = text.size();
  std::string out = take_clean(text, limit, Place::kLine);
  if (!text.empty()) out += fmt::format("... ({} bytes)", size);
  return out;
}

std::string quoted(std::string_view text, std::size_t limit) {
  const std::string out = take_clean(text, limit, Place::kQuotes);
  return fmt::format("\"{}{}\"", out, text.empty() ? "" : "...");
}

std::string terminal_text(std::string_view text) {
  return take_clean(text, std::string::npos, Place::kTerminal);
}

}  // namespace llm
