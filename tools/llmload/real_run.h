#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/batching/scheduler.h"
#include "engine/executor.h"
#include "engine/sampler/sampler.h"
#include "tools/llmload/load_run.h"
#include "tools/llmload/workload.h"

namespace llm {

/// A request's tokens, and a hash over every row of logits that they were drawn from.
struct Text {
  std::vector<TokenId> tokens;  ///< prompt and generated
  std::uint64_t logits_hash = 0;

  bool operator==(const Text&) const = default;

  /// Draws the next token from a row. Errors: kNonFinite.
  Status take(std::span<const float> logits, const Sampler& sampler);
};

/// SHA-256, hex, over each text's number of tokens (u64), its tokens (i32) and its logits_hash, all
/// little-endian: what a run computed, whatever its times were.
std::string hash_of(std::span<const Text> texts);

struct RealRun {
  LoadTrace trace;
  std::vector<Text> texts;  ///< of request i; a refused one's is its prompt
};

/// How texts are made; request i is sequence i of the sampler.
struct TextOptions {
  SamplerOptions sampling = {.temperature = 0};
  std::uint64_t prompt_seed = 0;
};

/// Sends the workload through the executor of `model`, on this machine's clock.
/// @pre every length fits options.context. Errors: of Executor.
Result<RealRun> run_really(const std::shared_ptr<const Model>& model, KvType kv,
                           std::span<const LoadRequest> workload, const SchedulerOptions& options,
                           const TextOptions& text);

/// Makes every text of the runs of one workload again, alone and with other batches.
/// @return indices of those that differ, in some run, in a token or a bit of their logits
Result<std::vector<std::size_t>> differing_alone(
    const std::shared_ptr<const Model>& model, KvType kv, std::span<const LoadRequest> workload,
    const SchedulerOptions& options, const TextOptions& text, std::span<const RealRun> runs,
    const std::function<void(std::size_t done, std::size_t total)>& progress = {});

}  // namespace llm
