#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/llmbench/measurement.h"

namespace llm {

/// How a figure relates to an earlier one.
struct Comparison {
  Spread old;
  double speedup = 0;    ///< above 1: faster now, of rates and of times alike
  bool overlap = false;  ///< the ranges [min, max] meet: the difference may be noise
};

/// The rows of an earlier `llmbench -o json`.
class Baseline {
 public:
  /// Errors: those of reading the file; kMalformed for anything but an array of such rows.
  static Result<Baseline> read(const std::string& path);

  /// Against the row of the same test, model, type, threads, ISA and KV type; nothing without one.
  std::optional<Comparison> compare(const BenchModel& model, const Measurement& now) const;

 private:
  std::map<std::string, Spread> rows_;
};

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
/// A table in Markdown, aligned for a terminal, then the peaks if they are shown.
std::string report_markdown(const BenchReport& report);

}  // namespace llm
