#include "validate/report/layer_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace llm {
namespace {

/// log10 of limit / value: how many powers of ten a figure is inside.
double decades_inside(const LayerDiffRow& row) {
  constexpr double kMost = 16;
  if (row.limits.empty()) return 0;
  const double value = row_value(row);
  if (value == 0) return kMost;
  if (!std::isfinite(value)) return -kMost;
  return std::clamp(std::log10(row.limits.front().bound / value), -kMost, kMost);
}

/// "320 x": for people, two digits are enough.
std::string times(double decades) {
  const double factor = std::pow(10.0, decades);
  if (factor >= 1e4 || factor < 0.01) return fmt::format("{:.0e} x", factor);
  return fmt::format("{:.{}f} x", factor, factor < 1 ? 2 : factor < 10 ? 1 : 0);
}

/// Whether `a` says more about a layer than `b`, which comes before it: failing first, then the one
/// further out.
bool is_worse(const LayerDiffRow& a, const LayerDiffRow& b) {
  const auto rank = [](const LayerDiffRow& row) {
    return row.fails() ? 0 : row.verdict == TapVerdict::kAbsent ? 2 : 1;
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  if (a.fails()) return false;  // errors travel: the first says where to look
  return decades_inside(a) < decades_inside(b);
}

bool is_compared(const LayerDiffRow& row) { return row.verdict != TapVerdict::kAbsent; }

bool asks_for_equality(const LayerDiffRow& row) {
  return !row.limits.empty() && row.limits.front().bound == 0;
}

LayerAnswer answer_of(std::span<const LayerDiffRow* const> rows, bool with_label) {
  if (rows.empty()) return {.text = ""};
  const auto worst =
      std::ranges::min_element(rows, [](const auto* a, const auto* b) { return is_worse(*a, *b); });
  const LayerDiffRow& row = **worst;
  const std::string name = with_label ? tap_label(row.layer, row.tap) : row.tap;
  LayerAnswer out{.text = {}, .verdict = row.verdict, .decades = decades_inside(row)};
  const auto compared = static_cast<std::size_t>(
      std::ranges::count_if(rows, [](const auto* r) { return is_compared(*r); }));
  if (row.verdict == TapVerdict::kAbsent) {
    out.text = "absent";
  } else if (row.fails()) {
    out.text = fmt::format("{} {}", name,
                           row.note.empty() ? fmt::format("{:.1e}", row_value(row))
                                            : std::string(verdict_name(row.verdict)));
    const auto n = std::ranges::count_if(rows, [](const auto* r) { return r->fails(); });
    if (n > 1) out.text += fmt::format(" +{}", n - 1);
  } else if (asks_for_equality(row)) {
    out.text = with_label ? fmt::format("{} taps", compared) : "=";
  } else {
    out.text = fmt::format("{} {:.1e}", name, row_value(row));
    if (row_value(row) > 0 && row.verdict == TapVerdict::kShown && !row.limits.empty())
      out.text += fmt::format(", {}{}", times(-out.decades), with_label ? " the expected" : "");
    if (row_value(row) > 0 && row.verdict == TapVerdict::kPass)
      out.text += fmt::format(", {}{}", times(out.decades), with_label ? " inside" : "");
  }
  if (with_label && compared < rows.size())
    out.text += fmt::format(" ({} of {} taps compared)", compared, rows.size());
  return out;
}

/// What the factors of a section's answers say; empty where there are none.
std::string_view factor_words(const DiffSection& section) {
  const auto& rows = section.diff.rows;
  const auto has = [&](TapVerdict verdict) {
    return std::ranges::find(rows, verdict, &LayerDiffRow::verdict) != rows.end();
  };
  if (has(TapVerdict::kShown)) return ", of expected";
  const bool equality = !rows.empty() && asks_for_equality(rows.front());
  return !equality && has(TapVerdict::kPass) ? ", inside" : "";
}

}  // namespace

std::string layer_name(int layer) {
  return layer == ProbeSink::kGlobal ? "-" : std::to_string(layer);
}

std::string limit_text(const LayerDiffRow& row) {
  return row.limits.empty() ? "none" : fmt::format("{:.1e}", row.limits.front().bound);
}

double row_value(const LayerDiffRow& row) {
  return row.limits.empty() ? row.error.nmse : metric_value(row.limits.front().metric, row.error);
}

LayerTable layer_table(std::span<const DiffSection> sections) {
  LayerTable table{.columns = {"layer"}, .lines = {}};
  int n_layers = 0;
  for (const DiffSection& section : sections) {
    table.columns.push_back(section.name + std::string(factor_words(section)));
    for (const LayerDiffRow& row : section.diff.rows) n_layers = std::max(n_layers, row.layer + 1);
  }
  for (int layer = ProbeSink::kGlobal; layer < n_layers; ++layer) {
    LayerTable::Line line{layer_name(layer), {}};
    for (const DiffSection& section : sections) {
      std::vector<const LayerDiffRow*> rows;
      for (const LayerDiffRow& row : section.diff.rows)
        if (row.layer == layer) rows.push_back(&row);
      line.answers.push_back(answer_of(rows, false));
    }
    table.lines.push_back(std::move(line));
  }
  return table;
}

LayerAnswer section_answer(const DiffSection& section) {
  if (!section.diff.problems.empty())
    return {.text = section.diff.problems.front(), .verdict = TapVerdict::kFail};
  if (!section.location.preflight.empty() && section.diff.passed())
    return {.text = section.location.preflight.front(), .verdict = TapVerdict::kFail};
  std::vector<const LayerDiffRow*> rows;
  for (const LayerDiffRow& row : section.diff.rows) rows.push_back(&row);
  return answer_of(rows, true);
}

}  // namespace llm
