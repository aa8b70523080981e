#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/chat/jinja/meter.h"

namespace llm::jinja {

/// Where a character of a text came from.
using Tag = std::uint32_t;
constexpr Tag kMarkup = 0;        ///< the template, or what speaks for it (BOS, EOS)
constexpr Tag kContent = 1;       ///< messages, tools and variables, and what is made of them
constexpr Tag kFirstMessage = 2;  ///< + i: the content of message i

/// A text whose every byte has a tag, held as runs. Whatever is done to a text keeps the tags, and
/// counts. More than kMaxBytes or kMaxRuns are dropped, and is_too_long() tells.
class Text {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
  static constexpr std::size_t kMaxRuns = std::size_t{1} << 19;
  static constexpr std::size_t kNone = std::string_view::npos;
  struct Run {
    std::uint32_t end;  ///< the byte behind its last one
    Tag tag;
  };

  Text() = default;
  Text(std::string_view bytes, Tag tag) { append(bytes, tag); }

  std::string_view bytes() const { return bytes_; }
  std::span<const Run> runs() const { return runs_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool is_too_long() const { return is_too_long_; }
  /// @pre at < size()
  Tag tag_at(std::size_t at) const;

  void append(std::string_view bytes, Tag tag);
  void append(const Text& other, std::size_t from = 0, std::size_t n = kNone);
  /// Bytes [from, from + n). Cost: their number, and the logarithm of the runs'.
  Text part(std::size_t from, std::size_t n = kNone) const;
  /// Replaces each byte by change(byte).
  template <typename F>
  void change_bytes(F change) {
    touch(2 * bytes_.size());
    for (char& byte : bytes_) byte = change(byte);
  }

 private:
  std::size_t run_at(std::size_t at) const;

  String bytes_;
  Vector<Run> runs_;
  bool is_too_long_ = false;
};

/// The size of the character at `at`; a byte that belongs to none is one by itself. @pre in range
std::size_t character_size(std::string_view text, std::size_t at);
std::size_t count_characters(std::string_view text);
/// The byte at which character `index` starts; the size for one behind the end.
std::size_t character_offset(std::string_view text, std::size_t index);

/// Where `what` begins first, at or behind `from`, or last; kNone if it does not. Linear whatever
/// both are.
std::size_t find_text(std::string_view text, std::string_view what, std::size_t from = 0);
std::size_t find_last_text(std::string_view text, std::string_view what);
bool starts_with(std::string_view text, std::string_view what);
bool ends_with(std::string_view text, std::string_view what);

/// The number of bytes of white space, as Python's str.isspace() has it, at `at`; 0: none there.
std::size_t space_size(std::string_view text, std::size_t at);

/// What is left between white space at both ends, or between characters of `of`.
struct Stripped {
  std::size_t begin;
  std::size_t end;
};
Stripped strip(std::string_view text, bool front, bool back, const std::string_view* of = nullptr);
/// The first byte of the last character. @pre !text.empty()
std::size_t last_character(std::string_view text);

}  // namespace llm::jinja
