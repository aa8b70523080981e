#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/llmload/load_run.h"

namespace llm {

/// What a run was like for its requests, in one figure; of several runs their median.
struct LoadFigure {
  std::string name;  ///< "ttft p50 ms"
  double value;
  int decimals;  ///< to print
  bool gated;    ///< real and simulated must agree in it
  double least = value;
  double most = value;
};
using LoadFigures = std::vector<LoadFigure>;

/// All figures of a run (docs/load.md). Times count from the moment a request was due to arrive,
/// not from when the loop saw it; they are 0 where there are none.
LoadFigures figures_of(const LoadTrace& trace);

/// Of each figure the median, the least and the most of several runs; nothing without a run.
LoadFigures medians(std::span<const LoadFigures> runs);

/// @pre there is one of that name
double value_of(const LoadFigures& figures, std::string_view name);

/// Names of gated figures in which `simulated` differs from `real` by more than `limit`, a share of
/// `real`. @pre both have the same figures, or one has none
std::vector<std::string> disagreements(const LoadFigures& real, const LoadFigures& simulated,
                                       double limit);

}  // namespace llm
