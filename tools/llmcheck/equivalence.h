#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "tools/common/progress.h"
#include "tools/llmcheck/arguments.h"
#include "validate/report/report.h"

namespace llm {

/// --equivalence: holds the model against the frozen file, or with --update-equivalence writes it.
/// @param model   under Compute::kInt8
/// @param sha256  the model file's; kIntegrity if the frozen one is another
/// Errors also: those of parse_frozen(), check_replaces() and check_equivalence(), naming the file;
/// kIo.
Status run_equivalence(const CheckArguments& arguments, const std::shared_ptr<const Model>& model,
                       const std::string& sha256, ProgressBar& bar, Report& report);

}  // namespace llm
