#ifndef LLM_VALIDATE_SELF_SELF_CHECK_H_
#define LLM_VALIDATE_SELF_SELF_CHECK_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/report/report.h"

namespace llm {

struct SelfCheckOptions {
  std::string text;  ///< encoded, and repeated to the number of tokens below
  int threads = 0;   ///< of the run that all others are compared with; 0: available_cpus()
  Progress progress;
};

/// Proves that the fast paths are right on this file and this CPU; needs no reference.
///
/// First what surrounds the model, against its definition in plain loops: the vocabulary's
/// tokenizer (tokenizer_check.h), the sampler (sampler_check.h), the context shift (shift_check.h).
/// Then every kernel entry by itself, at the model's sizes (kernel_check.h); then every matrix by
/// itself (matrix_check.h): packing against the file's bytes, the scalar kernel against the
/// definition, every instruction set against scalar, batches against tokens. Then the text,
/// evaluated in every way the numeric contract calls equal, logits of all positions compared bit
/// for bit: the definition in plain loops, every instruction set of this CPU, 1, 2, 3 and 7
/// threads, batches of 1, 2, 7 and 32, one token at a time, without a cache, after truncation;
/// perplexity from prefill's logits and from decode's; greedy text with the cache and with
/// everything recomputed (cache_check.h); many sequences at once (sequence_check.h). int8 with f16
/// keys and values, then f32 with f32. A difference is a failed check that names the path and the
/// first difference, never an Error.
///
/// Small models (up to 64 MiB of weights) are fed 272 tokens, past the first chunk of attention;
/// larger ones 40, and the slow paths fewer (the report gives the number of logits compared).
///
/// Errors: those of Model::load and Session. Cost: under a minute of one CPU for a small model,
/// a minute and a half for 1.1 billion weights; the packed weights are in memory once.
Result<std::vector<CheckResult>> self_check(const std::string& model_path,
                                            const SelfCheckOptions& options);

}  // namespace llm

#endif  // LLM_VALIDATE_SELF_SELF_CHECK_H_
