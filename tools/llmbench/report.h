#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/llmbench/baseline.h"
#include "tools/llmbench/measurement.h"

namespace llm {

inline constexpr int kBenchSchemaVersion = 1;

/// All that an output is made of.
struct BenchReport {
  BenchModel model;
  std::vector<Measurement> measurements = {};
  std::map<int, PeakMeter> peaks = {};  ///< by threads; empty: none measured, no shares
  bool show_peaks = false;
  Isa peak_isa = Isa::kScalar;  ///< that the dot product's peaks are of
  std::optional<Baseline> baseline = std::nullopt;
};

/// A JSON array of rows, then one object for the peaks of each count of threads if they are shown.
std::string report_json(const BenchReport& report);
/// A header line and one line per test, RFC 4180. Peaks are columns of each row.
std::string report_csv(const BenchReport& report);
/// A table in Markdown, aligned for a terminal, then the peaks if they are shown.
std::string report_markdown(const BenchReport& report);

}  // namespace llm
