#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <vector>

#include "validate/report/markup.h"
#include "validate/report/report.h"

namespace llm {
namespace {

/// Undecided is JUnit's "error": the test came to no verdict.
std::string suite(const std::string& name, std::span<const CheckResult> checks) {
  const auto count = [&](Verdict verdict) {
    return std::ranges::count(checks, verdict, &CheckResult::verdict);
  };
  std::string out =
      fmt::format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n",
                  escaped(name), checks.size(), count(Verdict::kFail), count(Verdict::kUndecided));
  for (const CheckResult& check : checks) {
    out += fmt::format("    <testcase classname=\"{}\" name=\"{}\"", escaped(name),
                       escaped(check.name));
    out += check.passed ? "/>\n"
                        : fmt::format(">\n      <{} message=\"{}\"/>\n    </testcase>\n",
                                      check.undecided ? "error" : "failure", escaped(check.detail));
  }
  return out + "  </testsuite>\n";
}

std::vector<CheckResult> checks_of(const DiffSection& section) {
  std::vector<CheckResult> checks;
  for (const auto& problem : section.diff.problems) checks.push_back({"inputs", false, problem});
  for (const auto& problem : section.location.preflight)
    checks.push_back({"preflight", false, problem});
  for (const LayerDiffRow& row : section.diff.rows) {
    checks.push_back({tap_label(row.layer, row.tap), !row.fails(),
                      row.note.empty()
                          ? fmt::format("nmse {:.3e}, max abs {:.3e}, cos min {:.8f}",
                                        row.error.nmse, row.error.max_abs, row.error.cos_min)
                          : row.note});
  }
  return checks;
}

}  // namespace

std::string junit_report(const Report& raw) {
  const Report report = shown_report(raw);
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"llmcheck\">\n";
  if (!report.checks.empty()) out += suite("checks", report.checks);
  for (const DiffSection& section : report.diffs) out += suite(section.name, checks_of(section));
  return out + "</testsuites>\n";
}

}  // namespace llm
