// Names in a report come from files: what they hold must not leave the line, the cell or the tag
// that they stand in.

#include "base/utf8.h"
#include "tests/support/json.h"
#include "tests/support/test.h"
#include "validate/report/report.h"
#include "validate/report/text.h"

namespace llm {
namespace {

const std::string kHostile =
    "\x1b]0;owned\x07|</td><script>`[x](http://h)`\n# head\u202e\u009b" + std::string(1, '\xFF');

/// A report with hostile text in every place that has text.
Report hostile_report() {
  DiffSection section{
      .title = "f32: " + kHostile, .name = kHostile, .diff = {}, .notes = {kHostile}};
  section.diff.problems = {kHostile};
  section.diff.remarks = {kHostile};
  section.diff.rows = {
      {.layer = 0, .tap = kHostile, .verdict = TapVerdict::kFail, .note = kHostile}};
  section.diff.first_failing = 0;
  section.location.preflight = {kHostile};
  section.location.replayed = true;
  section.location.remarks = {kHostile};
  section.location.findings = {{.layer = 0,
                                .tap = kHostile,
                                .op = kHostile,
                                .weight_type = kHostile,
                                .signature = kHostile,
                                .tokens = kHostile,
                                .cause = kHostile}};
  return {.facts = {{kHostile, kHostile}},
          .checks = {{kHostile, false, kHostile}},
          .diffs = {section},
          .figures = {{.title = kHostile,
                       .name = "figures",
                       .columns = {kHostile, "n"},
                       .rows = {{{kHostile}, Figure::fixed(1, 0)}}}},
          .summary = kHostile,
          .not_covered = {kHostile},
          .next = {kHostile}};
}

bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("no text of a file steers a terminal through a report", "[report][shown]") {
  const Report report = hostile_report();
  for (const std::string& text : {text_report(report), text_report(report, {.verbose = true}),
                                  html_report(report), junit_report(report)}) {
    CAPTURE(text);
    CHECK(is_valid_utf8(text));
    for (const char* part : {"\x1b", "\x07", "\n# head", "\u202e", "\u009b"})
      CHECK_FALSE(holds(text, part));
    CHECK(holds(text, "\\x1b]0;owned\\x07"));
  }
}

TEST_CASE("no text of a file is markup in a report", "[report][shown]") {
  const Report report = hostile_report();
  for (const std::string& text : {html_report(report), junit_report(report)})
    CHECK_FALSE(holds(text, "<script"));
}

TEST_CASE("a long name takes no more than some lines", "[report][shown]") {
  Report report;
  report.facts = {{"model", std::string(65536, 'm')}};
  report.checks = {{std::string(65536, 'c'), true, std::string(65536, 'd')}};
  CHECK(text_report(report).size() < 10000);
  CHECK(html_report(report).size() < 20000);
}

TEST_CASE("an HTML page has the verdict first, what failed next, and aligned figures", "[report]") {
  const Report report{.facts = {{"command", "llmcheck m.gguf"}},
                      .checks = {{"good", true, "1"}, {"bad", false, "2"}},
                      .diffs = {},
                      .figures = {{.title = "T",
                                   .name = "t",
                                   .columns = {"model", "nll"},
                                   .rows = {{{"m"}, Figure::fixed(1.5, 2)}}}}};
  const std::string html = html_report(report);
  std::size_t at = 0;
  for (const char* part :
       {"<title>llmcheck: FAIL", "<h1><b class=\"FAIL\">FAIL", "llmcheck m.gguf", "<td>bad<td>2",
        "<td>good<td>1", "<th>model<th class=\"n\">nll", "<td>m<td class=\"n\">1.50"}) {
    CAPTURE(part, html);
    at = html.find(part, at);
    REQUIRE(at != std::string::npos);
  }
  CHECK(holds(html, "initial-scale=1"));
  CHECK(holds(html, "tabular-nums"));
  CHECK(holds(html, "prefers-color-scheme:dark){:root{"));  // and no brace of the template is left
  CHECK_FALSE(holds(html, "{{"));
  for (const char* fetched : {"<script", "src=", "href=\"http", "url("})
    CHECK_FALSE(holds(html, fetched));
}

TEST_CASE("the JSON report keeps every text", "[report][shown]") {
  const auto json = test::parse_json(json_report(hostile_report()));
  const std::string expected = kHostile.substr(0, kHostile.size() - 1) + "\uFFFD";
  CHECK(json["checks"][0]["name"] == expected);
  CHECK(json["layer_diffs"][0]["rows"][0]["note"] == expected);
}

}  // namespace llm
