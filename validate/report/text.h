#pragma once

#include <string>

#include "validate/report/report.h"

namespace llm {

struct TextStyle {
  bool verbose = false;  ///< every tap and check instead of a line per layer and group
  bool color = false;    ///< for a terminal: ANSI colors and bars
};

/// What a terminal shows: the verdict, each question with its answer, a line per layer, what failed
/// in full, what was not covered, what to do next. A clean run of 22 layers has at most 40 lines.
std::string text_report(const Report& report, const TextStyle& style = {});

}  // namespace llm
