#ifndef LLM_VALIDATE_INVARIANCE_H_
#define LLM_VALIDATE_INVARIANCE_H_

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

/// Evaluates one text in every way the numeric contract calls equal, and compares the logits of all
/// positions bit for bit with the first: the definition in plain loops, every instruction set of
/// this CPU, 1, 2, 3 and 7 threads, batches of 1, 2, 7 and 32, one token at a time, without a
/// cache, after truncation; int8 with f16 keys and values, then f32 with f32. A difference is a
/// failed check that names the path, the first position and how many logits differ, never an Error.
///
/// Small models (up to 64 MiB of weights) are fed 272 tokens, past the first chunk of attention;
/// larger ones 40.
///
/// Errors: those of Model::load and Session. Cost: a prompt of the text's length for each, and
/// packing the weights once for each instruction set; one model in memory at a time plus the first.
Result<std::vector<CheckResult>> self_check(const std::string& model_path,
                                            const SelfCheckOptions& options);

}  // namespace llm

#endif  // LLM_VALIDATE_INVARIANCE_H_
