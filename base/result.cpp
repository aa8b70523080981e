#include "base/result.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

namespace llm {

std::string Error::to_string() const {
  std::string text;
  if (!file.empty()) text += file + ": ";
  if (!field.empty()) text += field;
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
