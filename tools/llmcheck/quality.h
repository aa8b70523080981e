#pragma once

#include <string>

#include "base/result.h"
#include "tools/common/progress.h"
#include "tools/llmcheck/arguments.h"
#include "validate/report/report.h"

namespace llm {

/// The part of llmcheck that scores texts: runs --ppl, --kld and --quality as asked and adds what
/// it finds to `report`. Does nothing when none was asked for.
/// @param path    the model
/// @param sha256  its hash, which every load of it must have
/// Errors: those of loading models and reading texts, each naming its file.
Status run_quality_checks(const CheckArguments& arguments, const std::string& path,
                          const std::string& sha256, ProgressBar& bar, Report& report);

}  // namespace llm
