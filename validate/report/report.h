#ifndef LLM_VALIDATE_REPORT_REPORT_H_
#define LLM_VALIDATE_REPORT_REPORT_H_

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "validate/diff/layer_diff.h"
#include "validate/locate/locate_finding.h"
#include "validate/report/figures.h"

namespace llm {

/// One named check that is not a table of taps.
struct CheckResult {
  std::string name;  ///< "threads 1 and 3 give equal logits"
  bool passed = false;
  std::string detail;  ///< figures; why, when it failed
};

/// One comparison of two dumps, with what was compared.
struct DiffSection {
  std::string title;  ///< "compute f32, KV f32, against R0"
  std::string name;   ///< short, for machines: "f32"
  LayerDiff diff;
  Location location = {};  ///< where the error comes from, when something failed

  bool passed() const { return diff.passed() && location.empty(); }
};

/// Everything a run of llmcheck found. Writers turn it into a format; none adds a judgement.
struct Report {
  std::vector<std::pair<std::string, std::string>> facts;  ///< model, CPU, version, ... in order
  std::vector<CheckResult> checks;
  std::vector<DiffSection> diffs;
  std::vector<FigureTable> figures = {};      ///< measurements, which pass or fail nothing
  std::vector<std::string> not_covered = {};  ///< what no check looked at, and why

  /// Whether anything was judged.
  bool has_verdict() const { return !checks.empty() || !diffs.empty(); }
  bool empty() const { return !has_verdict() && figures.empty(); }
  /// Whether something was judged, and all of it well.
  bool passed() const;
};

/// What a terminal shows: verdicts and tables.
std::string text_report(const Report& report);
/// {"schema_version": 1, "verdict", "facts", "checks": [...], "layer_diffs": [...], "figures":
/// [...]}. Infinite and NaN figures are null; so is the verdict when nothing was judged.
std::string json_report(const Report& report);
/// GitHub-flavoured markdown, verdicts first.
std::string markdown_report(const Report& report);
/// JUnit XML: one suite per section, one test case per check and per tap.
std::string junit_report(const Report& report);
/// One self-contained HTML page: inline style and SVG, no script, nothing fetched.
std::string html_report(const Report& report);

/// The writer that the path's ending names (.json, .md, .html, .junit.xml or .xml), written
/// atomically. Errors: kUsage for another ending; kIo.
Status write_report(const Report& report, const std::string& path);
/// Whether write_report knows the ending, to refuse a wrong one before hours of work.
Status check_report_path(const std::string& path);

}  // namespace llm

#endif  // LLM_VALIDATE_REPORT_REPORT_H_
