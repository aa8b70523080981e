#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tools/llmload/cost_model.h"

namespace llm {

/// What step costs hold for.
struct CalibrationSubject {
  std::string model_sha256;
  std::string compute;
  std::string kv;
  std::string cpu;
  std::string isa;
  int threads = 0;
  std::size_t step_tokens = 0;  ///< most tokens of a measured step
  std::size_t parallel = 0;     ///< most sequences
  std::size_t context = 0;      ///< most positions of a sequence
};

/// Step costs of a model on a machine, as a file keeps them.
struct Calibration {
  CalibrationSubject subject;
  CostModel costs;
  Residuals residuals;
  FitQuality fit;
  std::size_t n_steps = 0;  ///< measured

  std::string to_json() const;
  /// Errors: kMalformed naming the member; kUnsupported for another schema.
  static Result<Calibration> parse(std::string_view json);
  /// Errors: as parse(), with the file; kIo; kResource for a file above 1 MiB.
  static Result<Calibration> read(const std::string& path);

  /// Whether a simulation of `wanted` may use it: same model, compute and kv, and no larger steps
  /// than measured. A comparison with a real run needs the same CPU, ISA and threads too.
  /// Errors: kIntegrity naming what differs, with both values.
  Status check_fits(const CalibrationSubject& wanted, bool same_machine) const;
};

/// Costs and residuals fitted to measured steps. Errors: of CostModel::fit().
Result<Calibration> calibrate(const CalibrationSubject& subject,
                              std::span<const StepSample> samples);

}  // namespace llm
