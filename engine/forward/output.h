#ifndef LLM_ENGINE_FORWARD_OUTPUT_H_
#define LLM_ENGINE_FORWARD_OUTPUT_H_

#include "engine/forward/pass.h"

namespace llm {

/// The logits of the rows that want them: a product of the normed residual. It needs no memory.
class Output {
 public:
  /// Waits once.
  void run(PassWorker& at);
};

}  // namespace llm

#endif  // LLM_ENGINE_FORWARD_OUTPUT_H_
