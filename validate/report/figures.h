#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace llm {

/// A cell of a table of figures.
struct Figure {
  std::string text;                            ///< as people read it
  std::optional<double> value = std::nullopt;  ///< as machines do; nothing: the text

  /// A number with `digits` significant digits, in fixed or scientific form by its size.
  static Figure number(double value, int digits = 6);
  /// A number with that many decimals.
  static Figure fixed(double value, int decimals);
  static Figure count(std::size_t value) { return fixed(static_cast<double>(value), 0); }
};

/// Figures without a judgement: measurements a user asked for.
struct FigureTable {
  std::string title;
  std::string name;  ///< short, for machines: "perplexity"
  std::vector<std::string> columns;
  std::vector<std::vector<Figure>> rows;  ///< each as wide as columns
};

/// Aligned columns: the first to the left, the others to the right. Title first.
std::string figures_text(const FigureTable& table);
std::string figures_html(const FigureTable& table);

}  // namespace llm
