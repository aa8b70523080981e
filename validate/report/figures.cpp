#include "validate/report/figures.h"

#include <fmt/core.h>

#include <algorithm>

#include "validate/report/markup.h"

namespace llm {

Figure Figure::number(double value, int digits) {
  return {fmt::format("{:.{}g}", value, digits), value};
}

Figure Figure::fixed(double value, int decimals) {
  return {fmt::format("{:.{}f}", value, decimals), value};
}

std::string figures_text(const FigureTable& table) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    widths.push_back(table.columns[c].size());
    for (const auto& row : table.rows) widths[c] = std::max(widths[c], row[c].text.size());
  }
  const auto line = [&](const auto& text_of) {
    std::string out = fmt::format("{:<{}}", text_of(0), widths[0]);
    for (std::size_t c = 1; c < widths.size(); ++c)
      out += fmt::format("  {:>{}}", text_of(c), widths[c]);
    return out + "\n";
  };
  std::string out = table.title + "\n";
  out += line([&](std::size_t c) { return table.columns[c]; });
  for (const auto& row : table.rows) out += line([&](std::size_t c) { return row[c].text; });
  return out;
}

std::string figures_html(const FigureTable& table) {
  // Figures stand under each other to the right, words to the left.
  const auto style = [&](std::size_t column) {
    return std::ranges::any_of(table.rows,
                               [&](const auto& row) { return row[column].value.has_value(); })
               ? " class=\"n\""
               : "";
  };
  std::string out =
      fmt::format("<h2>{}</h2>\n<div class=\"wide\"><table><tr>", escaped(table.title));
  for (std::size_t c = 0; c < table.columns.size(); ++c)
    out += fmt::format("<th{}>{}", style(c), escaped(table.columns[c]));
  out += "</tr>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c)
      out += fmt::format("<td{}>{}", style(c), escaped(row[c].text));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

}  // namespace llm
