#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/report/report.h"

namespace llm {

struct SequenceCheckOptions {
  std::size_t n_sequences = 8;
  std::size_t most_new = 48;  ///< tokens of a sequence after the leading ones, at most
  bool every_mix = true;      ///< false: only the first and the last of the four mixes
  std::uint64_t seed = 1;
  Progress progress;
};

/// Runs `n_sequences` sequences through one executor, random numbers of them at once, each with
/// one token (decode) or several (prefill) per call, in four mixes: with pages for all; with so few
/// that some give theirs back, again and again, and are computed anew; and both again with pages of
/// equal leading tokens shared. Texts are drawn tokens; all are fed the same whole page first, if
/// the context has room for one, and every second one goes back into it and on with tokens of its
/// own. The logits of every sequence must be those of its run alone, bit for bit. Then prompts of
/// 256 and of 512 tokens, which others are fed when all their pages are published. A difference is
/// a failed check that names sequence, position and token.
///
/// Errors: those of Executor. Cost: per mix, the sequences' tokens and what preemption repeats.
Result<std::vector<CheckResult>> check_sequences(const std::shared_ptr<const Model>& model,
                                                 KvType kv, const SequenceCheckOptions& options);

}  // namespace llm
