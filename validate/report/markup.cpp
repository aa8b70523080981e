#include "validate/report/markup.h"

#include "base/shown_text.h"

namespace llm {
namespace {

void clean(std::string& text) {
  constexpr std::size_t kLongBytes = 2000;  // figures of many layers are long and no attack
  text = shown(text, kLongBytes);
}

void clean(std::vector<std::string>& texts) {
  for (std::string& text : texts) clean(text);
}

void clean(CheckResult& check) {
  clean(check.name);
  clean(check.detail);
}

void clean(Location& location) {
  clean(location.preflight);
  clean(location.remarks);
  for (Finding& f : location.findings)
    for (std::string* text : {&f.tap, &f.op, &f.weight_type, &f.signature, &f.tokens, &f.cause})
      clean(*text);
}

void clean(DiffSection& section) {
  clean(section.title);
  clean(section.name);
  clean(section.notes);
  clean(section.diff.problems);
  clean(section.diff.remarks);
  for (LayerDiffRow& row : section.diff.rows) {
    clean(row.tap);
    clean(row.note);
  }
  clean(section.location);
}

void clean(FigureTable& table) {
  clean(table.title);
  clean(table.columns);
  for (auto& row : table.rows)
    for (Figure& figure : row) figure.text = shown(figure.text);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Report shown_report(Report report) {
  for (auto& [name, value] : report.facts) {
    clean(name);
    clean(value);
  }
  for (CheckResult& check : report.checks) clean(check);
  for (DiffSection& section : report.diffs) clean(section);
  for (FigureTable& table : report.figures) clean(table);
  clean(report.summary);
  clean(report.not_covered);
  clean(report.next);
  return report;
}

}  // namespace llm
