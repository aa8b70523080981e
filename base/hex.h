#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace llm {

/// The byte that two hex digits of either case spell; nothing for any other text.
inline std::optional<std::uint8_t> hex_byte(std::string_view text) {
  std::uint8_t byte = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, byte, 16);
  if (text.size() != 2 || error != std::errc() || rest != end) return std::nullopt;
  return byte;
}

/// `bytes` as two lower-case hex digits each.
inline std::string hex_text(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[static_cast<unsigned>(byte) >> 4];
    text += kDigits[static_cast<unsigned>(byte) & 15];
  }
  return text;
}

}  // namespace llm
