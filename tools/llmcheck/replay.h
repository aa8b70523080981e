#pragma once

#include <string>

#include "base/result.h"
#include "tools/common/progress.h"
#include "tools/llmcheck/arguments.h"
#include "tools/llmcheck/reference.h"
#include "validate/receipt/receipt.h"
#include "validate/report/report.h"

namespace llm {

/// Reads the receipt of --replay. Errors: kIo, and those of parse_receipt(), naming the file.
Result<Receipt> load_receipt(const CheckArguments& arguments);

/// Makes a receipt's text again and adds the verdicts to `report`.
/// @param sha256  the model file's; kIntegrity if the receipt's is another
/// Errors also: those of replay_receipt(), naming the file they come from.
Status run_replay(const CheckArguments& arguments, const Receipt& receipt, const LoadMode& load,
                  const std::string& path, const std::string& sha256, ProgressBar& bar,
                  Report& report);

}  // namespace llm
