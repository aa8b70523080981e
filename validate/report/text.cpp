#include "validate/report/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "validate/report/layer_table.h"
#include "validate/report/shown_report.h"
#include "validate/report/text_table.h"

namespace llm {
namespace {

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

std::string_view verdict(bool passed) { return passed ? "PASS" : "FAIL"; }

/// A cell for each power of ten inside the limit.
std::string bar(const Answer& answer, const TextStyle& style) {
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
    const Answer answer = section_answer(section);
    const bool shown = !section.judged;
    std::string words = shown && !section.notes.empty() ? section.notes.front() : answer.text;
    out += fmt::format("{} {:<10}  {}: {}{}\n",
                       tag(shown ? "     " : verdict(section.passed()), style), section.name,
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
