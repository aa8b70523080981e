#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "tools/common/progress.h"
#include "tools/llmcheck/arguments.h"

namespace llm {

/// Loads a model as llmcheck's options say (--isa, --threads), with progress; its warnings are
/// logged.
/// @param sha256  what the file's hash must be, the one that the report names; empty: anything
/// Errors: those of Model::load, naming the file.
Result<std::shared_ptr<const Model>> load_for_check(const CheckArguments& arguments,
                                                    const std::string& path,
                                                    const std::string& sha256, Compute compute,
                                                    ProgressBar& bar);

}  // namespace llm
