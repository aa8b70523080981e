#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "validate/report/layer_table.h"
#include "validate/report/markup.h"
#include "validate/report/report.h"

namespace llm {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{}: {}</title><style>
:root{{color-scheme:light dark;--ok:#1a7f37;--bad:#cf222e;--open:#9a6700;--line:#8884;--ink:#1f2328;--soft:#59636e;--blue:#0969da;--bg:#fff;--band:#8881}}
@media(prefers-color-scheme:dark){{:root{{--ok:#3fb950;--bad:#f85149;--open:#d29922;--ink:#e6edf3;--soft:#9198a1;--blue:#58a6ff;--bg:#0d1117}}}}
*{{box-sizing:border-box}}
body{{font:15px/1.5 system-ui,"DejaVu Sans",sans-serif;color:var(--ink);background:var(--bg);max-width:1080px;margin:1.5em auto;padding:0 16px;overflow-wrap:anywhere}}
h1{{font-size:1.6em;margin:0 0 .2em}}h2{{font-size:1.15em;margin:2em 0 .5em}}p{{margin:.4em 0}}a{{color:inherit}}
b.PASS,.PASS>b{{color:var(--ok)}}b.FAIL,b.MISSING,td.FAIL,td.MISSING{{color:var(--bad)}}b.UNDECIDED{{color:var(--open)}}
.wide{{overflow-x:auto;-webkit-overflow-scrolling:touch}}
table{{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;overflow-wrap:normal}}
td,th{{padding:3px 12px 3px 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}}
th{{color:var(--soft);font-weight:500}}.n{{text-align:right;white-space:nowrap}}
.facts td:first-child{{color:var(--soft);white-space:nowrap}}.facts td,.list td{{overflow-wrap:anywhere}}
.list td:first-child{{white-space:nowrap}}.layers td,.layers th{{white-space:nowrap}}
tr:hover td{{background:var(--band)}}summary{{cursor:pointer;margin:.5em 0}}
pre{{white-space:pre-wrap;font-size:13px;padding-left:1em;border-left:3px solid var(--bad)}}
svg{{width:100%;min-width:760px;height:auto;margin:.5em 0;display:block}}
svg text{{font:11px system-ui,"DejaVu Sans",sans-serif;fill:var(--ink)}}svg .x{{fill:#fff;font-weight:600}}
@media(max-width:640px){{.list tr,.list td{{display:block;border:0;padding:0}}.list tr{{padding:6px 0;border-bottom:1px solid var(--line)}}.list th{{display:none}}}}
</style></head><body>
)";

std::string verdict_tag(std::string_view verdict) {
  return fmt::format("<b class=\"{0}\">{0}</b>", verdict);
}

std::string section_tag(const DiffSection& section) {
  return section.judged ? verdict_tag(verdict_name(section.verdict())) : "shown";
}

bool has_figures(const LayerDiffRow& row) {
  return row.verdict == TapVerdict::kPass || row.verdict == TapVerdict::kShown ||
         (row.verdict == TapVerdict::kFail && row.note.empty());
}

// log10, from -16 (also for 0: equal) to 1 (also for infinity and NaN: unusable).
double decades(double value) {
  if (value == 0) return -16;
  return std::isfinite(value) ? std::clamp(std::log10(value), -16.0, 1.0) : 1;
}

// Two curves over the taps in the order of the data flow: nmse and 1 - cos_min, log scale.
std::string curve(const LayerDiff& diff) {
  constexpr double kWidth = 1000;
  constexpr double kLeft = 50;
  constexpr double kStep = 10;  // pixels a decade
  const auto y_of = [](double value) { return 20 - (decades(value) - 1) * kStep; };
  std::string out =
      "<div class=\"wide\"><svg viewBox=\"0 0 1060 215\" role=\"img\"><title>error by "
      "tap</title>\n";
  for (int decade = -16; decade <= 0; decade += 4) {
    const double y = y_of(std::pow(10.0, decade));
    out += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"var(--line)\"/>"
        "<text x=\"4\" y=\"{3:.1f}\">1e{4}</text>\n",
        kLeft, kLeft + kWidth, y, y + 4, decade);
  }
  std::string nmse_points;
  std::string cos_points;
  std::string limit_points;
  const double step = kWidth / static_cast<double>(std::max<std::size_t>(diff.rows.size(), 1));
  for (std::size_t i = 0; i < diff.rows.size(); ++i) {
    const LayerDiffRow& row = diff.rows[i];
    const double x = kLeft + step * (static_cast<double>(i) + 0.5);
    if (row.tap == layer_taps().front().name)
      out += fmt::format("<text x=\"{:.1f}\" y=\"210\">{}</text>\n", x, row.layer);
    if (!row.limits.empty() && row.limits[0].metric == Metric::kNmse)
      limit_points += fmt::format("{:.1f},{:.1f} ", x, y_of(row.limits[0].bound));
    if (!has_figures(row)) continue;
    nmse_points += fmt::format("{:.1f},{:.1f} ", x, y_of(row_value(row)));
    cos_points += fmt::format("{:.1f},{:.1f} ", x, y_of(1 - row.error.cos_min));
  }
  out += fmt::format(
      "<polyline fill=\"none\" stroke=\"var(--blue)\" stroke-width=\"1.5\" points=\"{}\"/>\n"
      "<polyline fill=\"none\" stroke=\"var(--bad)\" stroke-dasharray=\"3 3\" points=\"{}\"/>\n"
      "<polyline fill=\"none\" stroke=\"var(--ink)\" stroke-dasharray=\"1 4\" points=\"{}\"/>\n",
      nmse_points, cos_points, limit_points);
  return out +
         "<text x=\"60\" y=\"12\">solid: NMSE (of single ops: the worst token), dashed: 1 - "
         "least cosine, dotted: limit; taps in the order of the data flow, layers "
         "below</text></svg></div>\n";
}

// Green at six decades under the limit and more, yellow at it, red above or unusable.
std::string heat(const LayerDiffRow& row) {
  if (row.verdict == TapVerdict::kAbsent) return "#8884";
  if (row.verdict != TapVerdict::kPass && row.verdict != TapVerdict::kShown) return "#cf222e";
  if (row.limits.empty() || row.limits[0].bound == 0) return "hsl(140 60% 42%)";
  const double margin =
      decades(row.limits[0].bound) - decades(metric_value(row.limits[0].metric, row.error));
  return fmt::format("hsl({:.0f} 60% 42%)", 50 + 15 * std::clamp(margin, 0.0, 6.0));
}

std::string heat_map(const LayerDiff& diff) {
  std::vector<Tap> taps;
  std::ranges::copy_if(layer_taps(), std::back_inserter(taps), [&](const Tap& tap) {
    return std::ranges::find(diff.rows, tap.name, &LayerDiffRow::tap) != diff.rows.end();
  });
  int n_layers = 0;
  for (const auto& row : diff.rows) n_layers = std::max(n_layers, row.layer + 1);
  std::string out = fmt::format(
      "<div class=\"wide\"><svg viewBox=\"0 0 {} {}\" role=\"img\"><title>layers by "
      "taps</title>\n",
      70 + 66 * taps.size(), 44 + 16 * n_layers);
  for (std::size_t t = 0; t < taps.size(); ++t)
    out += fmt::format("<text x=\"{}\" y=\"14\">{}</text>\n", 50 + 66 * t, taps[t].name);
  for (int layer = 0; layer < n_layers; ++layer)
    out += fmt::format("<text x=\"20\" y=\"{}\">{}</text>\n", 32 + 16 * layer, layer);
  for (const auto& row : diff.rows) {
    if (row.layer == ProbeSink::kGlobal) continue;
    const auto column = std::ranges::find(taps, row.tap, &Tap::name) - taps.begin();
    out += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"64\" height=\"14\" fill=\"{}\"><title>{}: nmse "
        "{:.3e}</title></rect>\n",
        50 + 66 * column, 21 + 16 * row.layer, heat(row), escaped(tap_label(row.layer, row.tap)),
        row.error.nmse);
    if (row.fails())
      out += fmt::format("<text class=\"x\" x=\"{}\" y=\"{}\">x</text>\n", 79 + 66 * column,
                         32 + 16 * row.layer);
  }
  return out + fmt::format(
                   "<text x=\"50\" y=\"{}\">layer by tap; green: far below the limit, yellow: near "
                   "it, red with x: fails, grey: absent</text></svg></div>\n",
                   36 + 16 * n_layers);
}

std::string table(const LayerDiff& diff) {
  std::string out =
      "<details><summary>every tap</summary><div class=\"wide\"><table><tr><th class=\"n\">layer"
      "<th>tap";
  for (const char* column :
       {"cos p5", "cos min", "cos median", "max abs", "nmse", "worst token", "SNR dB", "limit"})
    out += fmt::format("<th class=\"n\">{}", column);
  out += "<th>verdict<th>note</tr>\n";
  for (const LayerDiffRow& row : diff.rows) {
    const TapError& e = row.error;
    out += fmt::format(
        "<tr><td class=\"n\">{}<td>{}<td class=\"n\">{:.8f}<td class=\"n\">{:.8f}<td class=\"n\">"
        "{:.8f}<td class=\"n\">{:.3e}<td class=\"n\">{:.3e}<td class=\"n\">{:.3e}<td class=\"n\">"
        "{:.1f}<td class=\"n\">{}<td>{}<td>{}</tr>\n",
        layer_name(row.layer), escaped(row.tap), e.cos_p5, e.cos_min, e.cos_median, e.max_abs,
        e.nmse, e.row_nmse, e.snr_db, limit_text(row), verdict_tag(verdict_name(row.verdict)),
        escaped(row.note));
  }
  return out + "</table></div></details>\n";
}

std::string diff_section(const DiffSection& section, std::size_t index) {
  std::string out = fmt::format("<h2 id=\"d{}\">{}: {}</h2>\n", index, escaped(section.title),
                                section_tag(section));
  for (const auto& note : section.notes) out += fmt::format("<p>{}</p>\n", escaped(note));
  for (const auto& problem : section.diff.problems)
    out += fmt::format("<p>problem: {}</p>\n", escaped(problem));
  for (const auto& remark : section.diff.remarks)
    out += fmt::format("<p>remark: {}</p>\n", escaped(remark));
  if (section.diff.first_failing) {
    const LayerDiffRow& row = section.diff.rows[*section.diff.first_failing];
    out += fmt::format("<p>The first failing tap is <b>{}</b>: look at {}. {}</p>\n",
                       escaped(tap_label(row.layer, row.tap)),
                       escaped(tap_origin(row.layer, row.tap)), escaped(row.note));
  }
  if (section.location.replayed)
    out += fmt::format("<pre>{}</pre>\n", escaped(location_text(section.location)));
  return out + curve(section.diff) + heat_map(section.diff) + table(section.diff);
}

/// Every verdict in one table, before anything else.
std::string summary(const Report& report) {
  std::string out = "<table class=\"list\">\n";
  if (!report.checks.empty()) {
    const auto passed = std::ranges::count(report.checks, true, &CheckResult::passed);
    const auto failed = std::ranges::find(report.checks, false, &CheckResult::passed);
    const bool all = failed == report.checks.end();
    const Verdict worst = Report{.facts = {}, .checks = report.checks, .diffs = {}}.verdict();
    out += fmt::format("<tr><td>{}<td><a href=\"#checks\">checks</a><td>{} of {}{}</tr>\n",
                       verdict_tag(verdict_name(worst)), passed, report.checks.size(),
                       all ? "" : "; the first that does not pass: " + escaped(failed->name));
  }
  for (std::size_t i = 0; i < report.diffs.size(); ++i) {
    const DiffSection& section = report.diffs[i];
    out += fmt::format("<tr><td>{}<td><a href=\"#d{}\">{}</a><td>{}</tr>\n", section_tag(section),
                       i, escaped(section.title), escaped(section_answer(section).text));
  }
  return out + "</table>\n";
}

/// A line per layer: the tap of each question that is furthest out.
std::string layers(const Report& report) {
  const LayerTable table = layer_table(report.diffs);
  std::string out = "<h2>Layers</h2>\n<div class=\"wide\"><table class=\"layers\"><tr>";
  for (const std::string& column : table.columns) out += fmt::format("<th>{}", escaped(column));
  out += "</tr>\n";
  for (const auto& line : table.lines) {
    out += fmt::format("<tr><td>{}", line.layer);
    for (const LayerAnswer& answer : line.answers)
      out += fmt::format("<td class=\"{}\">{}", verdict_name(answer.verdict), escaped(answer.text));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

}  // namespace

std::string html_report(const Report& raw) {
  const Report report = shown_report(raw);
  const std::string_view word = report.has_verdict() ? verdict_name(report.verdict()) : "figures";
  std::string out = fmt::format(fmt::runtime(kHead), "llmcheck", word);
  out += fmt::format("<h1>{} llmcheck</h1>\n", verdict_tag(word));
  if (!report.summary.empty()) out += fmt::format("<p>{}</p>\n", escaped(report.summary));
  if (report.has_verdict()) out += summary(report);
  out += "<h2>What was run</h2>\n<table class=\"facts\">\n";
  for (const auto& [name, value] : report.facts)
    out += fmt::format("<tr><td>{}<td>{}</tr>\n", escaped(name), escaped(value));
  out += "</table>\n";
  for (const std::string& line : report.preflight())
    out += fmt::format("<p>{} preflight: {}</p>\n", verdict_tag("FAIL"), escaped(line));
  if (!report.diffs.empty()) out += layers(report);
  if (!report.checks.empty()) {
    out +=
        "<h2 id=\"checks\">Checks</h2>\n<table "
        "class=\"list\"><tr><th>verdict<th>check<th>detail</tr>\n";
    auto checks = report.checks;  // what asks for attention first
    std::ranges::stable_partition(checks, [](const CheckResult& c) { return !c.passed; });
    for (const CheckResult& check : checks) {
      out +=
          fmt::format("<tr><td>{}<td>{}<td>{}</tr>\n", verdict_tag(verdict_name(check.verdict())),
                      escaped(check.name), escaped(check.detail));
    }
    out += "</table>\n";
  }
  for (const std::string& line : report.not_covered)
    out += fmt::format("<p>Not covered: {}</p>\n", escaped(line));
  for (const FigureTable& table : report.figures) out += figures_html(table);
  for (std::size_t i = 0; i < report.diffs.size(); ++i) out += diff_section(report.diffs[i], i);
  return out + "</body></html>\n";
}

}  // namespace llm
