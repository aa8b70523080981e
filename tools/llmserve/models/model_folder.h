#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "tools/llmserve/models/model_manager.h"

namespace llm {

/// The models of a folder and of the folders in it, by name: every .gguf is one, but that the parts
/// of a split one count once. A name is the file's without .gguf, and without a part's number.
/// Errors: kIo for a folder that cannot be read; kUsage for one without models, or with two of one
/// name.
Result<std::vector<ModelManager::Model>> find_models(const std::string& folder);

/// The one model at `path`. @param names  each a name, or several with commas; the first counts in
/// answers; none: the file's
ModelManager::Model one_model(const std::string& path, const std::vector<std::string>& names);

}  // namespace llm
