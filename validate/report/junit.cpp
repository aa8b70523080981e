#include <fmt/core.h>

#include <algorithm>

#include "validate/report/markup.h"
#include "validate/report/report.h"

namespace llm {
namespace {

/// Undecided is JUnit's "error": the test came to no verdict.
std::string test_case(const std::string& suite, const std::string& name, Verdict verdict,
                      const std::string& detail) {
  const auto head =
      fmt::format("    <testcase classname=\"{}\" name=\"{}\"", escaped(suite), escaped(name));
  if (verdict == Verdict::kPass) return head + "/>\n";
  return fmt::format("{}>\n      <{} message=\"{}\"/>\n    </testcase>\n", head,
                     verdict == Verdict::kFail ? "failure" : "error", escaped(detail));
}

std::string suite(const std::string& name, std::size_t tests, std::size_t failures,
                  std::size_t errors, const std::string& cases) {
  return fmt::format(
      "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n{}  </testsuite>\n",
      escaped(name), tests, failures, errors, cases);
}

std::string diff_suite(const DiffSection& section) {
  std::string cases;
  std::size_t failures = section.diff.problems.size();
  for (const auto& problem : section.diff.problems)
    cases += test_case(section.name, "inputs", Verdict::kFail, problem);
  const auto& preflight = section.location.preflight;
  failures += preflight.size();
  for (const auto& problem : preflight)
    cases += test_case(section.name, "preflight", Verdict::kFail, problem);
  for (const LayerDiffRow& row : section.diff.rows) {
    const bool failed = row.fails();
    failures += failed ? 1 : 0;
    cases += test_case(
        section.name, tap_label(row.layer, row.tap), failed ? Verdict::kFail : Verdict::kPass,
        row.note.empty() ? fmt::format("nmse {:.3e}, max abs {:.3e}, cos min {:.8f}",
                                       row.error.nmse, row.error.max_abs, row.error.cos_min)
                         : row.note);
  }
  return suite(section.name,
               section.diff.rows.size() + section.diff.problems.size() + preflight.size(), failures,
               0, cases);
}

}  // namespace

std::string junit_report(const Report& raw) {
  const Report report = shown_report(raw);
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"llmcheck\">\n";
  if (!report.checks.empty()) {
    std::string cases;
    for (const CheckResult& check : report.checks)
      cases += test_case("checks", check.name, check.verdict(), check.detail);
    const auto count = [&](Verdict verdict) {
      return static_cast<std::size_t>(
          std::ranges::count(report.checks, verdict, &CheckResult::verdict));
    };
    out += suite("checks", report.checks.size(), count(Verdict::kFail), count(Verdict::kUndecided),
                 cases);
  }
  for (const DiffSection& section : report.diffs) out += diff_suite(section);
  return out + "</testsuites>\n";
}

}  // namespace llm
