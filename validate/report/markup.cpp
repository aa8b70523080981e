#include "validate/report/markup.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/shown_text.h"

namespace llm {
namespace {

using Entity = std::pair<char, std::string_view>;

constexpr Entity kXml[] = {
    {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
constexpr Entity kMarkdown[] = {{'&', "&amp;"}, {'<', "&lt;"},  {'>', "&gt;"},  {'|', "&#124;"},
                                {'[', "&#91;"}, {'*', "&#42;"}, {'`', "&#96;"}, {'\\', "&#92;"}};

std::string with_entities(std::string_view text, std::span<const Entity> entities) {
  std::string out;
  for (const char c : text) {
    const auto found = std::ranges::find(entities, c, &Entity::first);
    out += found == entities.end() ? std::string_view(&c, 1) : found->second;
  }
  return out;
}

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

std::string escaped(std::string_view text) { return with_entities(text, kXml); }

std::string markdown_text(std::string_view text) { return with_entities(text, kMarkdown); }

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
