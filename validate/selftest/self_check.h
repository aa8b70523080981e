#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/report/report.h"

namespace llm {

struct SelfCheckOptions {
  std::string text;          ///< encoded, and repeated to the number of tokens below
  int threads = 0;           ///< of the run that all others are compared with; 0: available_cpus()
  std::string model_sha256;  ///< what the file's hash must be; empty: anything
  std::string packed_cache;  ///< directory: weights are mapped from there; empty: packed
  bool fail_fast = false;    ///< leave out what comes after the first part that fails
  Progress progress;
};

/// What the self check judged, and what it did not look at on this file and CPU.
struct SelfCheckOutcome {
  std::vector<CheckResult> results;
  std::vector<std::string> not_covered;
  std::vector<std::string> warnings;  ///< of loading the model
};

/// Proves that the fast paths are right on this file and this CPU; needs no reference.
///
/// From the ground up, so that the first failure is the cause: the definition's own functions
/// against f64 (definition_check.h); the vocabulary's tokenizer against its rules in plain loops
/// (tokenizer_check.h); every kernel entry by itself at the model's sizes
/// (kernel_check.h); shares of teams on more rows than small models have (matrix_verdict.h); every
/// matrix: packing against the file's bytes, kernels against the definition, batches against
/// tokens, teams (matrix_verdict.h). Then the paths, bit for bit, int8 with f16 keys and values,
/// then f32 with f32: a text in every way the contract calls equal (mode_check.h), long texts
/// (mode_check.h), teams that sleep at random around their barriers (mode_check.h), many sequences
/// at once (sequence_check.h); few tokens with the other type of cache each. What makes text of
/// logits depends on no file: `--equivalence` and the tests have it.
///
/// A difference is a failed check that names the path and the first difference, never an Error; so
/// are NaN and infinite logits. Where prefill itself is wrong, one check says so and names the
/// first wrong op; right paths still pass. A path that differs is run again: other bits than before
/// are called a race.
///
/// Small models (up to 64 MiB of weights) are fed 337 tokens in every way; larger ones 40, and the
/// slow paths fewer. Long texts take as many layers as are affordable; `not_covered` says which are
/// left out.
///
/// Errors: those of Model::load and Session. Cost: under half a minute of one CPU for a small
/// model, three minutes of two for 1.1 billion weights; the packed weights are in memory once.
Result<SelfCheckOutcome> self_check(const std::string& model_path, const SelfCheckOptions& options);

}  // namespace llm
