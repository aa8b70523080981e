#ifndef LLM_VALIDATE_SELF_CACHE_CHECK_H_
#define LLM_VALIDATE_SELF_CACHE_CHECK_H_

#include <memory>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/report/report.h"

namespace llm {

/// How much to generate.
struct CacheCheckOptions {
  std::size_t n_prompts = 50;
  std::size_t n_prompt_tokens = 8;  ///< drawn from the vocabulary, seeded, after BOS
  std::size_t n_tokens = 20;        ///< greedy, after each prompt
  Progress progress;
};

/// Generates with the KV cache and again with every position recomputed at each step. The tokens
/// and the logits they were chosen from must be equal; the detail says how much faster the cache
/// is, which passes or fails nothing.
/// Errors: those of Session. Cost: n_prompts * n_tokens * (n_prompt_tokens + n_tokens / 2) tokens.
Result<CheckResult> check_cached_generation(const std::shared_ptr<const Model>& model, KvType kv,
                                            const CacheCheckOptions& options);

}  // namespace llm

#endif  // LLM_VALIDATE_SELF_CACHE_CHECK_H_
