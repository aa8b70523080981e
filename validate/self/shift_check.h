#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/report/report.h"

namespace llm {

using OpenSession = std::function<Result<std::unique_ptr<Session>>(const ExecutorOptions&)>;

struct ShiftCheckOptions {
  /// Positions of the session, one check each; the model's own where that is less.
  std::vector<std::size_t> contexts = {24, 300};
  bool without_bos = true;  ///< also a text that does not begin with BOS, at the first context
  std::uint64_t seed = 1;   ///< of the prompts' tokens
  OpenSession open;         ///< what is checked; empty: sequences of the model
};

/// Generates past a full context (GenerateOptions::context_shift), twice after a first
/// prompt, then after a second one that does not fit. Before every draw the session must hold the
/// tokens that the rule keeps (BOS, and the newer half of what follows it), and the logits must
/// have the bits of a new session that was fed these tokens alone; the token must be the one that
/// docs/sampling.md draws from them at its position, what was forgotten counted. A failed check
/// names the token after which it differs: what is held, logits or the draw.
///
/// Errors: those of Session. Cost: per context, the tokens of about three contexts, twice.
Result<std::vector<CheckResult>> check_context_shift(const std::shared_ptr<const Model>& model,
                                                     KvType kv,
                                                     const ShiftCheckOptions& options = {});

}  // namespace llm
