#include "validate/report/text_table.h"

#include <fmt/core.h>

#include <algorithm>

namespace llm {
namespace {

std::string heading() {
  return fmt::format("{:>5}  {:<11}  {:>10}  {:>10}  {:>10}  {:>9}  {:>9}  {:>9}  {:>7}  {}\n",
                     "layer", "tap", "cos_p5", "cos_min", "cos_median", "max_abs", "nmse",
                     "worst row", "limit", "verdict");
}

std::string layer_name(int layer) {
  return layer == ProbeSink::kGlobal ? "-" : std::to_string(layer);
}

// The bound on nmse, or on whichever metric is bounded.
std::string limit_text(const LayerDiffRow& row) {
  if (row.limits.empty()) return "none";
  return fmt::format("{:.1e}", row.limits.front().bound);
}

std::string row_line(const LayerDiffRow& row) {
  const std::string head = fmt::format("{:>5}  {:<11}", layer_name(row.layer), row.tap);
  const bool has_figures = row.verdict == TapVerdict::kPass || row.verdict == TapVerdict::kShown ||
                           (row.verdict == TapVerdict::kFail && !row.limits.empty());
  if (!has_figures) return fmt::format("{}  {}  {}\n", head, verdict_name(row.verdict), row.note);
  const TapError& e = row.error;
  std::string line =
      fmt::format("{}  {:>10.8f}  {:>10.8f}  {:>10.8f}  {:>9.3e}  {:>9.3e}  {:>9.3e}  {:>7}  {}",
                  head, e.cos_p5, e.cos_min, e.cos_median, e.max_abs, e.nmse, e.row_nmse,
                  limit_text(row), verdict_name(row.verdict));
  if (!row.note.empty()) line += "  " + row.note;
  return line + "\n";
}

std::string summary(const LayerDiff& diff) {
  if (diff.passed()) {
    return fmt::format("PASS: {} taps within their limits\n",
                       std::ranges::count(diff.rows, TapVerdict::kPass, &LayerDiffRow::verdict));
  }
  if (!diff.problems.empty()) return "FAIL: the dumps cannot be compared\n";
  if (!diff.first_failing) return "";
  const LayerDiffRow& row = diff.rows[*diff.first_failing];
  const auto failing = std::ranges::count_if(diff.rows, [](const LayerDiffRow& r) {
    return r.verdict == TapVerdict::kFail || r.verdict == TapVerdict::kMissing;
  });
  std::string line = fmt::format("FAIL: {} of {} taps; the first is {}", failing, diff.rows.size(),
                                 tap_label(row.layer, row.tap));
  if (row.note.empty()) {
    line += fmt::format(" (worst at token {}, feature {}: {} here, {} in the reference)",
                        row.error.worst_row, row.error.worst_feature, row.error.worst_actual,
                        row.error.worst_expected);
  } else {
    line += fmt::format(" ({})", row.note);
  }
  return line + fmt::format("\n      look at: {}\n", tap_origin(row.layer, row.tap));
}

}  // namespace

std::string layer_diff_table(const LayerDiff& diff) {
  std::string out;
  for (const auto& problem : diff.problems) out += fmt::format("problem: {}\n", problem);
  for (const auto& remark : diff.remarks) out += fmt::format("remark: {}\n", remark);
  if (!diff.rows.empty()) out += heading();
  for (const auto& row : diff.rows) out += row_line(row);
  return out + summary(diff);
}

std::string failing_taps_table(const LayerDiff& diff) {
  LayerDiff failing = diff;
  std::erase_if(failing.rows, [](const LayerDiffRow& row) {
    return row.verdict != TapVerdict::kFail && row.verdict != TapVerdict::kMissing;
  });
  const std::size_t shown = std::min<std::size_t>(kMostFailing, failing.rows.size());
  std::string out;
  for (const auto& problem : diff.problems) out += fmt::format("problem: {}\n", problem);
  if (shown > 0) out += heading();
  for (std::size_t i = 0; i < shown; ++i) out += row_line(failing.rows[i]);
  if (failing.rows.size() > shown)
    out += fmt::format("{:>5}  and {} more (-v)\n", "", failing.rows.size() - shown);
  return out + summary(diff);
}

}  // namespace llm
