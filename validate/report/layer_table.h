#pragma once

#include <span>
#include <string>
#include <vector>

#include "validate/reference/fault_localization/locate_finding.h"

namespace llm {

/// The answer to one question in short: "63 taps equal", "attn_ctx 3.1e-13, 320 x inside".
struct LayerAnswer {
  std::string text;
  TapVerdict verdict = TapVerdict::kAbsent;
  double decades = 0;  ///< how far inside its limit, as a power of ten; negative: outside
};

/// Every layer's answers, one per section: the tap that is furthest out, its figure, and how far
/// inside its limit it is.
struct LayerTable {
  struct Line {
    std::string layer;  ///< "-": outside the layers
    std::vector<LayerAnswer> answers;
  };
  std::vector<std::string> columns;  ///< "layer", then the sections' names and what factors say
  std::vector<Line> lines;
};

LayerTable layer_table(std::span<const DiffSection> sections);

/// The whole section's answer, with the tap's label instead of its name.
LayerAnswer section_answer(const DiffSection& section);

/// Its number; "-" outside the layers.
std::string layer_name(int layer);

/// The bound on nmse, or on whichever metric is bounded; "none".
std::string limit_text(const LayerDiffRow& row);

/// What a figure is compared with, and the figure: of the limit that applied, or NMSE.
double row_value(const LayerDiffRow& row);

}  // namespace llm
