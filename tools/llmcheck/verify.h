#pragma once

#include <string>

#include "base/result.h"
#include "tools/common/progress.h"
#include "tools/llmcheck/arguments.h"
#include "validate/report/report.h"
#include "validate/text/verify/reference.h"

namespace llm {

/// Reads the reference of --verify, with --verify-quick its two prompts only.
/// Errors: kIo, and those of parse_verify_reference, naming the file.
Result<VerifyReference> load_verify_reference(const CheckArguments& arguments);

/// Holds the model against the reference and adds tables and verdicts to `report`.
/// @param path    the model
/// @param sha256  its hash; kIntegrity if it is not the reference's, unless --verify-quantized is
///                given
/// Errors also: those of run_verify, naming the file they come from.
Status run_verify_check(const CheckArguments& arguments, const VerifyReference& reference,
                        const std::string& path, const std::string& sha256, ProgressBar& bar,
                        Report& report);

}  // namespace llm
