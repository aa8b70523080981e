#pragma once

#include <string>

#include "base/result.h"

namespace llm {

/// The model file that `named` means: itself, or the one GGUF in it when it is a directory, where
/// the parts of a split model count as one and the first part stands for them.
/// Errors: kIo for a directory without a GGUF; kUsage for one with several, which it lists.
Result<std::string> resolve_model(const std::string& named);

/// The model of those who name none: the environment's LLM_MODEL, else the one that comes with the
/// program (in the checkout it was built in, or installed beside it), which it says on stderr.
/// Errors: kUsage when there is none; as resolve_model.
Result<std::string> default_model();

}  // namespace llm
