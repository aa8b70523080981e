#pragma once

#include <string>

#include "validate/reference/diff/layer_diff.h"
#include "validate/report/report.h"

namespace llm {

/// The comparison as a table of plain text, one line per tap, 100 columns, ending in a line with
/// the verdict that names the first failing tap:
///
///   layer  tap          cos_p5     cos_min    cos_median  max_abs    nmse       limit    verdict
std::string layer_diff_table(const LayerDiff& diff);

/// The same of the taps that fail or are missing, at most the first `kMostFailing`.
std::string failing_taps_table(const LayerDiff& diff);
inline constexpr int kMostFailing = 12;

struct TextStyle {
  bool verbose = false;  ///< every tap and check instead of a line per layer and group
  bool color = false;    ///< for a terminal: ANSI colors and bars
};

/// What a terminal shows: the verdict, each question with its answer, a line per layer, what failed
/// in full, what was not covered, what to do next. A clean run of 22 layers has at most 40 lines.
std::string text_report(const Report& report, const TextStyle& style = {});

}  // namespace llm
