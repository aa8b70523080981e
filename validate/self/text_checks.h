#pragma once

#include <cstddef>
#include <cstdint>
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

/// Runs something without proposals and then with those of every kind: none, right and wrong ones
/// in every number, n-grams, and a draft of the model's own first layers; each of a fixed length,
/// so that time decides nothing.
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
