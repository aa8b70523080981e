#pragma once

#include "tests/support/test.h"

namespace llm::test {

inline std::string times(std::string_view text, std::size_t n) {
  std::string all;
  for (std::size_t i = 0; i < n; ++i) all += text;
  return all;
}

/// The parts of a text between separators.
inline std::vector<std::string> split(const std::string& text, std::string_view separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
    if (end == std::string::npos) return parts;
    begin = end + separator.size();
  }
}

}  // namespace llm::test
