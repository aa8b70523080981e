#include "base/result.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

namespace llm {

namespace {

/// A name in a message; one that a file made long is cut, with its size behind it.
std::string cut(std::string_view name) {
  constexpr std::size_t kMost = 120;
  if (name.size() <= kMost) return std::string(name);
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;  // in UTF-8
  return fmt::format("{}... ({} bytes)", name.substr(0, end), name.size());
}

}  // namespace

std::string Error::to_string() const {
  std::string text;
  if (!file.empty()) text += file + ": ";
  if (!field.empty()) text += cut(field);
  if (offset) text += fmt::format("{}(byte {})", field.empty() ? "" : " ", *offset);
  if (!field.empty() || offset) text += ": ";
  text += message;
  if (!hint.empty()) text += "; " + hint;
  return text;
}

Error in_file(Error error, std::string_view file) {
  if (error.file.empty()) error.file = file;
  return error;
}

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: contract broken: %s\n", file, line, condition);
  std::abort();
}

}  // namespace llm
