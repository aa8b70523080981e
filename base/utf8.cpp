#include "base/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace llm {
namespace {

/// The lead byte's promise: sequence length (0: no lead byte) and the range of the second byte.
struct Lead {
  std::size_t size = 0;
  unsigned second_low = 0x80;
  unsigned second_high = 0xBF;
};

Lead classify_lead(unsigned byte) {
  if (byte < 0x80) return {.size = 1};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {.size = 2};
  if (byte == 0xE0) return {.size = 3, .second_low = 0xA0};   // below would be overlong
  if (byte == 0xED) return {.size = 3, .second_high = 0x9F};  // above are surrogates
  if (byte < 0xF0) return {.size = 3};
  if (byte == 0xF0) return {.size = 4, .second_low = 0x90};   // below would be overlong
  if (byte == 0xF4) return {.size = 4, .second_high = 0x8F};  // above exceeds U+10FFFF
  if (byte < 0xF4) return {.size = 4};
  return {};
}

unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

}  // namespace

Utf8Head utf8_head(std::string_view text) {
  const Lead lead = classify_lead(byte_at(text, 0));
  if (lead.size == 0) return {};
  const std::size_t available = std::min(lead.size, text.size());
  for (std::size_t i = 1; i < available; ++i) {
    const unsigned low = i == 1 ? lead.second_low : 0x80;
    const unsigned high = i == 1 ? lead.second_high : 0xBF;
    if (byte_at(text, i) < low || byte_at(text, i) > high) return {};
  }
  if (available < lead.size) return {Utf8Head::Kind::kIncomplete, available};
  return {Utf8Head::Kind::kCharacter, lead.size};
}

char32_t utf8_code_point(std::string_view character) {
  const unsigned lead = byte_at(character, 0);
  char32_t code = character.size() == 1 ? lead : lead & (0x7FU >> character.size());
  for (std::size_t i = 1; i < character.size(); ++i)
    code = code << 6 | (byte_at(character, i) & 0x3FU);
  return code;
}

void append_utf8(char32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int n_more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  out += static_cast<char>(0xFF << (7 - n_more) | code >> 6 * n_more);
  for (int i = n_more - 1; i >= 0; --i) out += static_cast<char>(0x80 | (code >> 6 * i & 0x3F));
}

std::size_t valid_utf8_size(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080U;
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t word = kHighBits;
    if (at + sizeof(word) <= text.size()) std::memcpy(&word, text.data() + at, sizeof(word));
    if ((word & kHighBits) == 0) {  // eight characters of ASCII
      at += sizeof(word);
      continue;
    }
    const Utf8Head head = utf8_head(text.substr(at));
    if (head.kind != Utf8Head::Kind::kCharacter) break;
    at += head.size;
  }
  return at;
}

bool is_valid_utf8(std::string_view text) { return valid_utf8_size(text) == text.size(); }

void append_valid_utf8(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    if (head.kind == Utf8Head::Kind::kCharacter) {
      out += text.substr(0, head.size);
      text.remove_prefix(head.size);
    } else {
      out += "\xEF\xBF\xBD";  // U+FFFD
      text.remove_prefix(1);
    }
  }
}

std::size_t complete_utf8_size(std::string_view text) {
  // A cut-off character has at most 3 bytes. Its lead byte is no continuation byte, so a suffix
  // that reads as incomplete begins the last character whatever stands before it.
  for (std::size_t tail = std::min<std::size_t>(3, text.size()); tail >= 1; --tail) {
    const std::size_t begin = text.size() - tail;
    if (utf8_head(text.substr(begin)).kind == Utf8Head::Kind::kIncomplete) return begin;
  }
  return text.size();
}

}  // namespace llm
