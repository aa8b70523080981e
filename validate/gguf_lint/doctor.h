#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "validate/gguf_lint/checks.h"
#include "validate/gguf_lint/finding.h"

namespace llm {

struct DoctorOptions {
  int threads = 0;               ///< 0: as many as CPUs allowed
  std::string fix = {};          ///< where to write a mended copy; empty: nowhere
  WeightProgress progress = {};  ///< called by one thread at a time
};

/// What is wrong with a file.
struct Examination {
  std::vector<FileFinding> findings;  ///< the gravest first
  std::size_t n_tensors = 0;
  bool written = false;  ///< the mended copy; never where there is nothing to mend

  std::size_t count(Severity severity) const;
  /// Nothing above a note.
  bool healthy() const;
};

/// Examines the GGUF at `path` (of a split model any part), whether it loads as a model or not:
/// what keeps it from loading is a finding. With options.fix, a whole file is written there with
/// everything mended that metadata alone can mend.
/// Errors: kIo; the parser's for a file that is no GGUF at all; kUsage where options.fix is a file
/// that is read.
/// Cost: reads every weight once, at about the speed of memory, and encodes a part of the
/// vocabulary.
Result<Examination> examine(const std::string& path, const DoctorOptions& options);

/// For people: a paragraph for each finding, and the verdict.
std::string doctor_text(const std::string& path, const Examination& examination);
/// {"schema_version", "file", "healthy", "written", "findings": [{"severity", "check", "where",
/// "what", "why", "remedy", "mend"}]}.
std::string doctor_json(const std::string& path, const Examination& examination);

}  // namespace llm
