#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace llm {

/// Names of the GGUF files in a directory, sorted; of a split one the first part alone.
/// Errors: kIo with the system's words; kResource where it has no memory.
Result<std::vector<std::string>> model_files(const std::string& directory);

}  // namespace llm
