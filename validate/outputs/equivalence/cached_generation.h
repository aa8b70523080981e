#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/report/report.h"

namespace llm {

/// Prompts of one length: drawn from the vocabulary, seeded, after BOS.
struct CachePrompts {
  std::size_t n_tokens;  ///< of each; may exceed the context the model was trained for
  std::size_t count;
};

/// How much to generate.
struct CacheCheckOptions {
  std::vector<CachePrompts> prompts = {{8, 50}};
  std::size_t n_tokens = 20;  ///< greedy, after each prompt
  Progress progress;
};

struct CacheOutcome {
  CheckResult check;
  FigureTable speedup;  ///< seconds of both ways by length of the prompt
};

/// Generates with the KV cache and again with every position recomputed at each step. The tokens
/// and the bits of all logits they were chosen from must be equal; the detail names the first that
/// are not. How much faster the cache is passes or fails nothing.
/// Errors: those of Session. Cost: a prompt of n tokens recomputes n_tokens * (n + n_tokens / 2).
Result<CacheOutcome> check_cached_generation(const std::shared_ptr<const Model>& model, KvType kv,
                                             const CacheCheckOptions& options);

}  // namespace llm
