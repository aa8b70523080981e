#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/generation/speculation.h"
#include "tools/common/progress.h"
#include "tools/llmrun/arguments.h"

namespace llm {

/// The model of a command line and a sequence on it.
struct Loaded {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Sequence> session;
  std::unique_ptr<Speculation> speculation;  ///< null without --speculate and --draft
  double seconds = 0;

  /// Says for -v what was learned of proposals, if there are any.
  void report_speculation() const;
};

/// Loads with a progress bar; warns of what the file and the context give reason for.
/// Errors: those of Model::load and Executor, for the draft too; kUsage for one of another
/// vocabulary.
Result<Loaded> load(const RunArguments& arguments, ProgressBar& progress);

}  // namespace llm
