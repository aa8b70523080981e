#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/llmload/arguments.h"
#include "tools/llmload/calibration.h"
#include "tools/llmload/figures.h"

namespace llm {

/// All that an output is made of.
struct LoadReport {
  std::string model;
  WorkloadOptions workload;
  SchedulerOptions scheduler;
  CalibrationSubject subject;              ///< of this run
  std::optional<Calibration> calibration;  ///< that was used
  std::vector<LoadFigures> real;           ///< of each round
  std::vector<LoadFigures> simulated;      ///< of each replica
  std::optional<FitQuality> steps_fit;     ///< of the costs, on the real runs' steps
  std::optional<bool> same_decisions;      ///< the replay's
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
