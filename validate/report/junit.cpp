#include <fmt/core.h>

#include <algorithm>

#include "validate/report/markup.h"
#include "validate/report/report.h"
#include "validate/report/shown_report.h"

namespace llm {
namespace {

std::string test_case(const std::string& suite, const std::string& name, bool passed,
                      const std::string& detail) {
  const auto head =
      fmt::format("    <testcase classname=\"{}\" name=\"{}\"", escaped(suite), escaped(name));
  if (passed) return head + "/>\n";
  return fmt::format("{}>\n      <failure message=\"{}\"/>\n    </testcase>\n", head,
                     escaped(detail));
}

std::string suite(const std::string& name, std::size_t tests, std::size_t failures,
                  const std::string& cases) {
  return fmt::format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\">\n{}  </testsuite>\n",
                     escaped(name), tests, failures, cases);
}

bool is_failure(const LayerDiffRow& row) {
  return row.verdict == TapVerdict::kFail || row.verdict == TapVerdict::kMissing;
}

std::string diff_suite(const DiffSection& section) {
  std::string cases;
  std::size_t failures = section.diff.problems.size();
  for (const auto& problem : section.diff.problems)
    cases += test_case(section.name, "inputs", false, problem);
  const auto& preflight = section.location.preflight;
  failures += preflight.size();
  for (const auto& problem : preflight)
    cases += test_case(section.name, "preflight", false, problem);
  for (const LayerDiffRow& row : section.diff.rows) {
    const bool failed = is_failure(row);
    failures += failed ? 1 : 0;
    cases += test_case(section.name, tap_label(row.layer, row.tap), !failed,
                       row.note.empty()
                           ? fmt::format("nmse {:.3e}, max abs {:.3e}, cos min {:.8f}",
                                         row.error.nmse, row.error.max_abs, row.error.cos_min)
                           : row.note);
  }
  return suite(section.name,
               section.diff.rows.size() + section.diff.problems.size() + preflight.size(), failures,
               cases);
}

}  // namespace

std::string junit_report(const Report& raw) {
  const Report report = shown_report(raw);
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"llmcheck\">\n";
  if (!report.checks.empty()) {
    std::string cases;
    for (const CheckResult& check : report.checks)
      cases += test_case("checks", check.name, check.passed, check.detail);
    const auto failures = std::ranges::count(report.checks, false, &CheckResult::passed);
    out += suite("checks", report.checks.size(), static_cast<std::size_t>(failures), cases);
  }
  for (const DiffSection& section : report.diffs) out += diff_suite(section);
  return out + "</testsuites>\n";
}

}  // namespace llm
