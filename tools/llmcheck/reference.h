#pragma once

#include <string>

#include "base/result.h"
#include "tools/common/progress.h"
#include "tools/llmcheck/arguments.h"
#include "validate/reference/dump/dump.h"
#include "validate/report/report.h"
#include "validate/text/stages/stages.h"

namespace llm {

/// --layer-diff: adds the answers to the questions about every tap to `report`.
/// @param sha256  the model's
/// Errors: kUnsupported for other positions than 0, 1, 2, ...; kUsage for a mode in which the
/// reference did not compute; kMalformed for one that nothing can be judged by; those of
/// check_layers(), naming the reference's file.
Status run_layer_diff(const CheckArguments& arguments, const Dump& reference, const LoadMode& load,
                      const std::string& sha256, ProgressBar& bar, Report& report);

/// --stages: adds a check for each stage, and their table. Errors: the same.
Status run_stages(const CheckArguments& arguments, const Dump& reference, const LoadMode& load,
                  const std::string& sha256, ProgressBar& bar, Report& report);

}  // namespace llm
