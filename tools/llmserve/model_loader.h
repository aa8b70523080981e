#pragma once

#include <memory>

#include "base/result.h"
#include "engine/model/progress.h"
#include "tools/llmserve/arguments.h"
#include "tools/llmserve/models/model_manager.h"

namespace llm {

/// How a model is served by these arguments: its context, its pages and the memory for it, by the
/// head of its file alone. Warnings are logged. The plan's load() gives a model whose texts can be
/// asked for.
/// Errors: those of open_model_file(); kUsage naming an option that does not go with the model.
/// load(): those of Model::load(), of ChatStyle::choose(), and of memory and threads.
/// @param a  outlives the plan. @param quiet  no progress is shown. @param store  may be null
/// @param progress  called by load(), in place of what is shown; may be empty
Result<LoadPlan> plan_model(const ServeArguments& a, const ModelManager::Model& model, bool quiet,
                            std::shared_ptr<StateStore> store = nullptr, Progress progress = {});

}  // namespace llm
