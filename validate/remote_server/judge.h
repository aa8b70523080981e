#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/remote_server/question.h"
#include "validate/report/report.h"

namespace llm {

struct JudgeOutcome {
  std::vector<CheckResult> checks;
  std::vector<FigureTable> figures;
  std::string summary;  ///< the verdict in a clause
  /// The answers are wrong in every kind of prompt, and nothing that was tried explains it.
  bool is_unexplained = false;
};

/// Whether a server's greedy answers are this model's, by docs/judge.md: its own tokens are
/// evaluated here, and the log-probabilities that it reported compared at every position. Other
/// rounding is told from a fault by what int8 activations, or keys and values in bf16, change in
/// this engine at the same positions. Of a fault, the way of serving (ServingHypothesis) that fits
/// the answers best is named where it explains them: what remains is noise.
///
/// @param answers  one for each question
/// Errors: the engine's. Cost: two prefills of all questions and answers; with a fault, ten more,
/// and one of eight questions for each way that is tried.
Result<JudgeOutcome> judge_answers(const std::shared_ptr<const Model>& model,
                                   std::span<const JudgeQuestion> questions,
                                   std::span<const JudgeAnswer> answers,
                                   const Progress& progress = {});

}  // namespace llm
