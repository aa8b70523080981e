#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/generate/speculation.h"
#include "validate/report/report.h"

namespace llm {

/// Runs something without proposals and then with those of every kind: none, right and wrong ones
/// (Rehearsal), n-grams, and a draft of the model's own first layers; each of a fixed length, so
/// that time decides nothing.
/// @param run  called with null first; an error ends all
/// @param kv  of the draft. @param context  positions that the draft needs
Status with_every_proposer(
    const std::shared_ptr<const Model>& model, KvType kv, std::size_t context,
    const std::function<Status(Speculation* speculation, std::string_view proposer)>& run);

struct SpeculationCheckOptions {
  std::size_t n_tokens = 48;  ///< to generate in each run
  bool every_way = true;      ///< false: sampled with a penalty alone
};

/// Generates after `prompt` without and with proposals, greedily, sampled with a repeat penalty,
/// and past a full context. Tokens, all rows of logits given to GenerateOptions::on_logits, the
/// session's position, and the logits of further tokens on what it has stored must be equal, bit
/// for bit. A failed check names the proposer and the first token or row that differs.
/// Errors: those of Generator. Cost: per way, five runs of n_tokens.
Result<std::vector<CheckResult>> check_speculation(const std::shared_ptr<const Model>& model,
                                                   KvType kv, std::span<const TokenId> prompt,
                                                   const SpeculationCheckOptions& options = {});

}  // namespace llm
