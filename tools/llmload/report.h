#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "tools/llmload/cost_model.h"
#include "tools/llmload/figures.h"

namespace llm {

/// All that an output is made of.
struct LoadReport {
  OrderedJson settings;                ///< model, machine, load and scheduler, by name
  LoadFigures real;                    ///< of all rounds; empty: none
  LoadFigures simulated;               ///< of all replicas
  std::optional<CostModel> costs;      ///< of the simulation
  FitQuality fit;                      ///< of the costs, on the steps that they were fitted to
  std::optional<FitQuality> real_fit;  ///< the same on the real runs' steps
  std::optional<bool> same_decisions;  ///< the replay's
  std::optional<std::vector<std::size_t>> differing_texts;  ///< from those made alone
  std::string texts_sha256;  ///< hash_of() the texts of the first run; empty without one
  double agree = 0.15;

  /// Gated figures in which both differ; empty unless both are there.
  std::vector<std::string> disagreements() const;
  bool passed() const;
};

/// A table with a line for each figure, then what was compared.
std::string report_text(const LoadReport& report);
std::string report_json(const LoadReport& report);

}  // namespace llm
