#pragma once

#include "engine/forward/pass.h"

namespace llm {

/// The logits of the rows that want them: a product of the normed residual. It needs no memory.
class Output {
 public:
  /// Waits once.
  void run(PassWorker& at);
};

}  // namespace llm
