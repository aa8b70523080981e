#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "validate/reference/fault_localization/locate_finding.h"
#include "validate/report/figures.h"

namespace llm {

/// What a check says, and a run: one failure fails it, else one undecided check leaves it so.
enum class Verdict { kPass, kFail, kUndecided };
/// "PASS", "FAIL", "UNDECIDED".
std::string_view verdict_name(Verdict verdict);

/// One named check that is not a table of taps.
struct CheckResult {
  std::string name;  ///< "threads 1 and 3 give equal logits"
  bool passed = false;
  std::string detail;      ///< figures; why, when it failed
  bool undecided = false;  ///< not passed, not failed: what there is to look at does not decide

  Verdict verdict() const {
    return passed ? Verdict::kPass : undecided ? Verdict::kUndecided : Verdict::kFail;
  }
};

/// Everything a run of llmcheck found. Writers turn it into a format; none adds a judgement.
struct Report {
  std::vector<std::pair<std::string, std::string>> facts;  ///< model, CPU, version, ... in order
  std::vector<CheckResult> checks;
  std::vector<DiffSection> diffs;
  std::vector<FigureTable> figures = {};      ///< measurements, which pass or fail nothing
  std::string summary = {};                   ///< the verdict in a clause
  std::vector<std::string> not_covered = {};  ///< what the checks asked for left out, and why
  std::vector<std::string> next = {};         ///< what the reader may do now

  /// What contradicts a reference before any op is computed, each once.
  std::vector<std::string> preflight() const;
  /// Whether anything was judged.
  bool has_verdict() const { return !checks.empty() || !diffs.empty(); }
  bool empty() const { return !has_verdict() && figures.empty(); }
  /// Of everything judged. @pre has_verdict()
  Verdict verdict() const;
  /// Whether something was judged, and all of it well.
  bool passed() const { return has_verdict() && verdict() == Verdict::kPass; }
};

/// {"schema_version": 1, "verdict", "facts", "checks": [...], "layer_diffs": [...], "figures":
/// [...]}. Infinite and NaN figures are null; so is the verdict when nothing was judged.
std::string json_report(const Report& report);
/// JUnit XML: one suite per section, one test case per check and per tap.
std::string junit_report(const Report& report);
/// One self-contained HTML page: inline style and SVG, no script, nothing fetched.
std::string html_report(const Report& report);

/// The writer that the path's ending names (.json, .html, .junit.xml or .xml), written
/// atomically. Errors: kUsage for another ending; kIo.
Status write_report(const Report& report, const std::string& path);
/// Whether write_report knows the ending, to refuse a wrong one before hours of work.
Status check_report_path(const std::string& path);

}  // namespace llm
