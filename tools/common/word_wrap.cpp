#include "tools/common/word_wrap.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>
#include <cwchar>
#include <utility>

#include "base/utf8.h"

namespace llm {
namespace {

constexpr std::size_t kTab = 8;
constexpr std::size_t kFewestColumns = 16;  // below, a line has no room for words

std::size_t width_of(std::string_view character) {
  std::mbstate_t state{};
  wchar_t wide = 0;
  if (std::mbrtowc(&wide, character.data(), character.size(), &state) > character.size()) return 1;
  return static_cast<std::size_t>(std::max(0, wcwidth(wide)));
}

}  // namespace

void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

std::string WordWrap::add(std::string_view text, std::size_t columns) {
  if (columns < kFewestColumns) return std::string(text);
  out_.clear();
  while (!text.empty()) {
    const std::string_view character = text.substr(0, utf8_head(text).size);
    text.remove_prefix(character.size());
    if (character == "\n") {
      out_ += '\n';
      column_ = 0;
    } else if (character == "\t") {
      out_ += '\t';
      column_ = std::min((column_ / kTab + 1) * kTab, columns - 1);
    } else if (character == " ") {
      if (column_ < columns) out_ += ' ';  // none at the margin: the line breaks there
      column_ = std::min(column_ + 1, columns);
    } else {
      add_character(character, width_of(character), columns);
      continue;
    }
    word_.clear();
    word_width_ = 0;
  }
  return std::move(out_);
}

void WordWrap::add_character(std::string_view character, std::size_t width, std::size_t columns) {
  const bool is_wide = width > 1;
  if (is_wide) {
    word_.clear();
    word_width_ = 0;
  }
  if (column_ + width > columns) break_line();
  out_ += character;
  column_ += width;
  if (is_wide) return;
  word_ += character;
  word_width_ += width;
}

/// Goes to the next line, with the word at hand unless it began the line: then the terminal cuts
/// it.
void WordWrap::break_line() {
  const std::size_t before = column_ - word_width_;
  if (before == 0) {
    word_.clear();
    word_width_ = 0;
  } else if (word_.empty()) {
    out_ += '\n';
  } else {
    out_ += fmt::format("\r\x1b[{}C\x1b[K\n{}", before, word_);
  }
  column_ = word_width_;
}

std::size_t stdout_columns() {
  const char* type = std::getenv("TERM");
  if (type == nullptr || *type == '\0' || std::string_view(type) == "dumb") return 0;
  winsize size = {};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

}  // namespace llm
