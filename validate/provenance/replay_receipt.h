#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/provenance/receipt.h"
#include "validate/report/report.h"

namespace llm {

struct ReplayOutcome {
  /// Of each receipt: its checks, or why it cannot be checked.
  std::vector<Result<std::vector<CheckResult>>> receipts;
  std::size_t n_positions = 0;  ///< evaluated, all by prefill
  std::size_t n_passes = 0;     ///< over the weights
  double seconds = 0;           ///< for evaluating and drawing
};

/// Whether this model gives the texts of receipts. Evaluates prompts and texts as prefill, as many
/// rows in a pass as it takes, which by the contract gives the bits of the decode that made them,
/// and draws each token again. What is found of a receipt does not depend on the others.
///
/// A failed check names the first token that the settings do not draw, with both ids. Where the
/// logits are the receipt's all the same, a setting is not: that text is evaluated once more, and
/// other values of each single one, small seeds among them, are tried for one that would draw the
/// tokens.
/// @param model  the receipts'; each is computed in the receipt's mode
/// @param receipts  outlive the call
/// Errors, of each receipt by itself: kUnsupported for a chat template that is neither built in nor
/// the model's; kIntegrity for a receipt of another contract version, kMalformed for an id that the
/// vocabulary lacks, kUnsupported for a text that was interrupted before it began; the engine's.
/// Cost: a prefill; 64 MiB of logits, and pages for the longest text and 32 more; to explain a
/// setting, some thousand draws.
ReplayOutcome replay_receipts(const std::shared_ptr<const Model>& model,
                              std::span<const Receipt* const> receipts,
                              const Progress& progress = {});

}  // namespace llm
