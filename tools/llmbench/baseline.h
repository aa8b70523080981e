#pragma once

#include <map>
#include <optional>
#include <string>

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

}  // namespace llm
