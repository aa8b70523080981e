#include "base/result.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

#include "base/shown_text.h"

namespace llm {

std::string Error::to_string() const {
  // All of it may come from a file. Paths and messages have room for more than a line.
  constexpr std::size_t kLongBytes = 1000;
  std::string text;
  if (!file.empty()) text += shown(file, kLongBytes) + ": ";
  if (!field.empty()) text += shown(field);
  if (offset) text += fmt::format("{}(byte {})", field.empty() ? "" : " ", *offset);
  if (!field.empty() || offset) text += ": ";
  text += shown(message, kLongBytes);
  if (!hint.empty()) text += "; " + shown(hint, kLongBytes);
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
