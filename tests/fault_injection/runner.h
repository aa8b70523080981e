#pragma once

#include <string>
#include <vector>

#include "tests/fault_injection/checks.h"
#include "tests/fault_injection/fault_list.h"

namespace llm::faults {

/// What one check said of one fault.
struct Outcome {
  Complaints complaints;
  bool struck = false;
  std::string end;     ///< "", or how the process ended: "no end after 60 s", "signal 11"
  double seconds = 0;  ///< user and system time

  bool found() const { return !complaints.empty() || !end.empty(); }
};

/// A fault and what its checks said, up to the first that found it.
struct Judgement {
  const Row* row;
  std::string check;  ///< that found it; empty: none did
  Outcome outcome;    ///< of that check, or of the last
  bool struck = false;
  double seconds = 0;  ///< user and system time of all that were asked

  bool named() const;
};

/// Judges faults, `jobs` at a time, each in a process of its own that has the loaded model.
/// @pre this process has one thread
std::vector<Judgement> judge(const Bench& bench, const std::vector<Row>& rows, int jobs);

/// One check in a process of its own.
Outcome run_apart(const Bench& bench, const Row& row, const std::string& check);

}  // namespace llm::faults
