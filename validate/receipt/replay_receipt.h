#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/receipt/receipt.h"
#include "validate/report/report.h"

namespace llm {

struct ReplayOutcome {
  std::vector<CheckResult> checks;
  std::size_t n_positions = 0;  ///< evaluated, all by prefill
  double seconds = 0;           ///< for evaluating and drawing
};

/// Whether this model gives the text of a receipt. Evaluates prompt and text as one prefill, which
/// by the contract gives the bits of the decode that made them, and draws each token again.
///
/// A failed check names the first token that the settings do not draw, with both ids. Where the
/// logits are the receipt's all the same, a setting is not: other values of each single one, small
/// seeds among them, are tried for one that would draw the tokens.
/// @param model  the receipt's, under its compute mode
/// Errors: kUnsupported for a chat template that is neither built in nor the model's; kIntegrity
/// for a receipt of another contract version, kMalformed for an id that the vocabulary lacks,
/// kUnsupported for a text that was interrupted before it began; the engine's. Cost: one prefill;
/// to explain a setting, some thousand draws.
Result<ReplayOutcome> replay_receipt(const std::shared_ptr<const Model>& model,
                                     const Receipt& receipt, const Progress& progress = {});

}  // namespace llm
