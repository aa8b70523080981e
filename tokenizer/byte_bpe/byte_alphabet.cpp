#include "tokenizer/byte_bpe/byte_alphabet.h"

#include <array>
#include <cstddef>

#include "base/utf8.h"

namespace llm {
namespace {

constexpr std::size_t kFirstOther = 0x100;  // the characters of bytes that are not printable
constexpr std::size_t kEnd = 0x144;
constexpr int kNoByte = -1;

constexpr bool is_printable(std::size_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

struct Alphabet {
  struct Character {
    char utf8[2] = {};
    std::uint8_t size = 0;
  };
  std::array<Character, 256> of_byte{};
  std::array<std::int16_t, kEnd> byte_of{};  ///< by code point; kNoByte

  constexpr Alphabet() {
    byte_of.fill(kNoByte);
    std::size_t other = kFirstOther;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::size_t value = is_printable(byte) ? byte : other++;
      byte_of[value] = static_cast<std::int16_t>(byte);
      Character& character = of_byte[byte];
      character.size = value < 0x80 ? 1 : 2;
      character.utf8[0] = static_cast<char>(value < 0x80 ? value : 0xC0 | value >> 6);
      character.utf8[1] = static_cast<char>(value < 0x80 ? 0 : 0x80 | (value & 0x3F));
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

std::string_view spelling_of_byte(std::uint8_t byte) {
  const Alphabet::Character& character = kAlphabet.of_byte[byte];
  return {character.utf8, character.size};
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(bytes.size() + bytes.size() / 2);
  for (const char c : bytes) spelling += spelling_of_byte(static_cast<std::uint8_t>(c));
  return spelling;
}

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  bytes.reserve(spelling.size());
  while (!spelling.empty()) {
    const Utf8Head head = utf8_head(spelling);
    if (head.kind != Utf8Head::Kind::kCharacter || head.size > 2) return std::nullopt;
    std::size_t value = static_cast<unsigned char>(spelling[0]);
    if (head.size == 2)
      value = (value & 0x1F) << 6 | (static_cast<unsigned char>(spelling[1]) & 0x3F);
    if (value >= kEnd || kAlphabet.byte_of[value] == kNoByte) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte_of[value]);
    spelling.remove_prefix(head.size);
  }
  return bytes;
}

}  // namespace llm
