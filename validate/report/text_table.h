#pragma once

#include <string>

#include "validate/reference/diff/layer_diff.h"

namespace llm {

/// The comparison as a table of plain text, one line per tap, 100 columns, ending in a line with
/// the verdict that names the first failing tap:
///
///   layer  tap          cos_p5     cos_min    cos_median  max_abs    nmse       limit    verdict
std::string layer_diff_table(const LayerDiff& diff);

/// The same of the taps that fail or are missing, at most the first `kMostFailing`.
std::string failing_taps_table(const LayerDiff& diff);
inline constexpr int kMostFailing = 12;

}  // namespace llm
