#include "validate/report/report.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/atomic_file.h"
#include "base/json.h"

namespace llm {
namespace {

using Writer = std::string (*)(const Report&);

constexpr std::pair<std::string_view, Writer> kWriters[] = {
    {".json", json_report}, {".html", html_report}, {".xml", junit_report}};

Writer writer_for(const std::string& path) {
  const auto* found = std::ranges::find_if(
      kWriters, [&](const auto& writer) { return path.ends_with(writer.first); });
  return found == std::end(kWriters) ? nullptr : found->second;
}

OrderedJson figures_json(const FigureTable& table) {
  OrderedJson rows = OrderedJson::array();
  for (const auto& row : table.rows) {
    OrderedJson cells = OrderedJson::object();
    for (std::size_t c = 0; c < row.size(); ++c)
      cells[table.columns[c]] =
          row[c].value ? OrderedJson(*row[c].value) : OrderedJson(row[c].text);
    rows.push_back(cells);
  }
  return {{"name", table.name}, {"title", table.title}, {"rows", rows}};
}

OrderedJson row_json(const LayerDiffRow& row) {
  OrderedJson limits = OrderedJson::array();
  for (const Limit& limit : row.limits) {
    limits.push_back(
        {{"metric", metric_name(limit.metric)}, {"limit", limit.bound}, {"source", limit.source}});
  }
  const TapError& e = row.error;
  return {{"layer", row.layer == ProbeSink::kGlobal ? OrderedJson() : OrderedJson(row.layer)},
          {"tap", row.tap},
          {"verdict", verdict_name(row.verdict)},
          {"nmse", e.nmse},
          {"row_nmse", e.row_nmse},
          {"max_abs", e.max_abs},
          {"cos_min", e.cos_min},
          {"cos_p5", e.cos_p5},
          {"cos_median", e.cos_median},
          {"snr_db", e.snr_db},
          {"worst", {{"token", e.worst_row}, {"feature", e.worst_feature}}},
          {"limits", limits},
          {"note", row.note}};
}

OrderedJson location_json(const Location& location) {
  OrderedJson findings = OrderedJson::array();
  for (const Finding& f : location.findings) {
    findings.push_back(
        {{"layer", f.layer == ProbeSink::kGlobal ? OrderedJson() : OrderedJson(f.layer)},
         {"tap", tap_label(f.layer, f.tap)},
         {"op", f.op},
         {"weight_type", f.weight_type},
         {"definition", f.definition},
         {"run", f.run},
         {"nmse", f.nmse},
         {"limit", f.limit},
         {"signature", f.signature},
         {"tokens", f.tokens},
         {"cause", f.cause}});
  }
  return {{"replayed", location.replayed},
          {"preflight", location.preflight},
          {"findings", findings},
          {"remarks", location.remarks}};
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"PASS", "FAIL", "UNDECIDED"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::vector<std::string> Report::preflight() const {
  std::vector<std::string> lines;
  for (const DiffSection& section : diffs)
    for (const std::string& line : section.location.preflight)
      if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
  return lines;
}

Verdict Report::verdict() const {
  const auto any = [&](Verdict verdict) {
    return std::ranges::find(checks, verdict, &CheckResult::verdict) != checks.end();
  };
  const bool diffs_pass =
      std::ranges::all_of(diffs, [](const DiffSection& s) { return s.passed(); });
  if (any(Verdict::kFail) || !diffs_pass) return Verdict::kFail;
  return any(Verdict::kUndecided) ? Verdict::kUndecided : Verdict::kPass;
}

std::string json_report(const Report& report) {
  OrderedJson json = {{"schema_version", 1},
                      {"verdict", report.has_verdict() ? OrderedJson(verdict_name(report.verdict()))
                                                       : OrderedJson()}};
  OrderedJson facts = OrderedJson::object();
  for (const auto& [name, value] : report.facts) facts[name] = value;
  json["facts"] = facts;
  json["checks"] = OrderedJson::array();
  for (const CheckResult& check : report.checks) {
    json["checks"].push_back({{"name", check.name},
                              {"verdict", verdict_name(check.verdict())},
                              {"detail", check.detail}});
  }
  json["not_covered"] = report.not_covered;
  json["layer_diffs"] = OrderedJson::array();
  for (const DiffSection& section : report.diffs) {
    OrderedJson rows = OrderedJson::array();
    for (const LayerDiffRow& row : section.diff.rows) rows.push_back(row_json(row));
    const auto first = section.diff.first_failing;
    const auto* failing = first ? &section.diff.rows[*first] : nullptr;
    json["layer_diffs"].push_back(
        {{"name", section.name},
         {"title", section.title},
         {"verdict", verdict_name(section.verdict())},
         {"notes", section.notes},
         {"first_failing",
          failing ? OrderedJson(tap_label(failing->layer, failing->tap)) : OrderedJson()},
         {"look_at",
          failing ? OrderedJson(tap_origin(failing->layer, failing->tap)) : OrderedJson()},
         {"problems", section.diff.problems},
         {"remarks", section.diff.remarks},
         {"locate", location_json(section.location)},
         {"rows", rows}});
  }
  json["figures"] = OrderedJson::array();
  for (const FigureTable& table : report.figures) json["figures"].push_back(figures_json(table));
  // nlohmann writes non-finite numbers as null.
  return json_text(json, 2) + "\n";
}

Status check_report_path(const std::string& path) {
  if (writer_for(path) != nullptr) return Ok{};
  return Error{
      ErrorCode::kUsage, "--report",
      fmt::format("found \"{}\", need a name that ends in .json, .html or .junit.xml", path)};
}

Status write_report(const Report& report, const std::string& path) {
  LLM_RETURN_IF_ERROR(check_report_path(path));
  const std::string text = writer_for(path)(report);
  return write_file_atomically(path, std::as_bytes(std::span(text)));
}

}  // namespace llm
