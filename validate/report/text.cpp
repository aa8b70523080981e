#include "validate/report/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "validate/report/layer_table.h"
#include "validate/report/markup.h"

namespace llm {
namespace {

std::string heading() {
  return fmt::format("{:>5}  {:<11}  {:>10}  {:>10}  {:>10}  {:>9}  {:>9}  {:>9}  {:>7}  {}\n",
                     "layer", "tap", "cos_p5", "cos_min", "cos_median", "max_abs", "nmse",
                     "worst row", "limit", "verdict");
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
  const auto failing = std::ranges::count_if(diff.rows, &LayerDiffRow::fails);
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

constexpr std::size_t kFewChecks = 12;
constexpr std::size_t kBarCells = 8;
/// Facts that a report keeps, and that who has just typed the command knows.
constexpr std::string_view kForFiles[] = {"date", "command", "sha256", "isa", "threads"};

/// Text in the color of its verdict.
std::string colored(const std::string& text, std::string_view verdict, const TextStyle& style) {
  if (!style.color) return text;
  const bool bad = verdict == "FAIL" || verdict == "MISSING";
  return fmt::format("\033[{}m{}\033[0m",
                     bad                      ? 31
                     : verdict == "PASS"      ? 32
                     : verdict == "UNDECIDED" ? 33
                                              : 36,
                     text);
}

std::string tag(std::string_view verdict, const TextStyle& style) {
  return colored(fmt::format("{:<5}", verdict), verdict, style);
}

/// A cell for each power of ten inside the limit.
std::string bar(const LayerAnswer& answer, const TextStyle& style) {
  if (!style.color || answer.verdict == TapVerdict::kAbsent) return "";
  const auto filled = static_cast<std::size_t>(
      std::clamp(std::ceil(answer.decades), 0.0, static_cast<double>(kBarCells)));
  std::string cells;
  for (std::size_t i = 0; i < kBarCells; ++i) cells += i < filled ? "█" : "░";
  return "  " + colored(cells, answer.verdict == TapVerdict::kFail ? "FAIL" : "PASS", style);
}

std::string questions(const Report& report, const TextStyle& style) {
  std::string out;
  std::set<std::string> told;  // what several sections note is printed once
  for (const DiffSection& section : report.diffs) {
    const LayerAnswer answer = section_answer(section);
    const bool shown = !section.judged;
    std::string words = shown && !section.notes.empty() ? section.notes.front() : answer.text;
    out += fmt::format("{} {:<10}  {}: {}{}\n",
                       tag(shown ? "     " : verdict_name(section.verdict()), style), section.name,
                       section.title.substr(section.title.find(": ") + 2), words,
                       shown ? "" : bar(answer, style));
    std::vector<std::string> lines(
        section.notes.begin() + (shown && !section.notes.empty() ? 1 : 0), section.notes.end());
    for (const auto& remark : section.diff.remarks) lines.push_back("remark: " + remark);
    for (const std::string& line : lines)
      if (told.insert(line).second) out += fmt::format("{:18}{}\n", "", line);
  }
  return out;
}

std::string layers(const Report& report, const TextStyle& style) {
  const LayerTable table = layer_table(report.diffs);
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::size_t width = table.columns[c].size();
    for (const auto& line : table.lines)
      width = std::max(width, c == 0 ? line.layer.size() : line.answers[c - 1].text.size());
    widths.push_back(width);
  }
  std::string out;
  const auto add = [&](std::size_t c, const std::string& text, std::string_view of_verdict) {
    const std::string padded =
        c == 0 ? fmt::format("{:>{}}", text, widths[c]) : fmt::format("  {:<{}}", text, widths[c]);
    out += of_verdict == "FAIL" || of_verdict == "MISSING" ? colored(padded, of_verdict, style)
                                                           : padded;
  };
  const auto end_line = [&] {
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  };
  for (std::size_t c = 0; c < table.columns.size(); ++c) add(c, table.columns[c], "");
  end_line();
  for (const auto& line : table.lines) {
    add(0, line.layer, "");
    for (std::size_t c = 1; c < table.columns.size(); ++c)
      add(c, line.answers[c - 1].text, verdict_name(line.answers[c - 1].verdict));
    end_line();
  }
  return out;
}

/// What failed in full; with -v everything.
std::string details(const Report& report, const TextStyle& style) {
  std::string out;
  for (const DiffSection& section : report.diffs) {
    if (style.verbose) {
      out += fmt::format("\n{}\n{}", section.title, layer_diff_table(section.diff));
    } else if (!section.passed()) {
      out += fmt::format("\n{}\n{}", section.title, failing_taps_table(section.diff));
    }
    out += location_text(section.location);
  }
  return out;
}

/// What the checks of one group have before the colon: "kernel", "int8, avx2".
std::string group_of(const CheckResult& check) {
  const std::size_t colon = check.name.find(": ");
  if (colon != std::string::npos) return check.name.substr(0, colon);
  const std::size_t space = check.name.find(' ');
  return space == std::string::npos ? check.name : check.name.substr(0, space);
}

std::string check_lines(const Report& report, const TextStyle& style) {
  std::string out;
  const bool all = style.verbose || report.checks.size() <= kFewChecks;
  std::map<std::string, std::size_t> passed;
  std::vector<std::string> groups;
  for (const CheckResult& check : report.checks) {
    if (all || !check.passed) {
      out += fmt::format("{} {:<52}  {}\n", tag(verdict_name(check.verdict()), style), check.name,
                         check.detail);
    } else if (passed[group_of(check)]++ == 0) {
      groups.push_back(group_of(check));
    }
  }
  for (const std::string& group : groups) {
    out += fmt::format("{} {:<40}  {} check{}\n", tag("PASS", style), group, passed[group],
                       passed[group] == 1 ? "" : "s");
  }
  return out;
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
  std::erase_if(failing.rows, std::not_fn(&LayerDiffRow::fails));
  const std::size_t shown = std::min<std::size_t>(kMostFailing, failing.rows.size());
  std::string out;
  for (const auto& problem : diff.problems) out += fmt::format("problem: {}\n", problem);
  if (shown > 0) out += heading();
  for (std::size_t i = 0; i < shown; ++i) out += row_line(failing.rows[i]);
  if (failing.rows.size() > shown)
    out += fmt::format("{:>5}  and {} more (-v)\n", "", failing.rows.size() - shown);
  return out + summary(diff);
}

std::string text_report(const Report& raw, const TextStyle& style) {
  const Report report = shown_report(raw);
  std::string out;
  if (report.has_verdict()) {
    const std::string_view word = verdict_name(report.verdict());
    out += fmt::format("{}{}\n", colored(std::string(word), word, style),
                       report.summary.empty() ? "" : "  " + report.summary);
  }
  for (const auto& [name, value] : report.facts) {
    if (!style.verbose && std::ranges::find(kForFiles, name) != std::end(kForFiles)) continue;
    out += fmt::format("{:<10} {}\n", name, value);
  }
  // It may explain all that follows.
  for (const std::string& line : report.preflight())
    out += fmt::format("{} preflight   {}\n", tag("FAIL", style), line);
  if (!report.diffs.empty()) {
    out += questions(report, style);
    out += '\n' + layers(report, style) + details(report, style);
  }
  for (const FigureTable& table : report.figures) out += fmt::format("\n{}", figures_text(table));
  if (!report.checks.empty()) out += '\n' + check_lines(report, style);
  for (const std::string& line : report.not_covered)
    out += fmt::format("{} {}\n", "not covered:", line);
  for (const std::string& line : report.next) out += fmt::format("next: {}\n", line);
  return out;
}

}  // namespace llm
