#pragma once

#include "engine/forward/pass.h"

namespace llm {

/// The rows that are wanted: logits, a product of the normed residual, or that itself. It needs no
/// memory.
class Output {
 public:
  /// Waits once.
  void run(PassWorker& at);
};

}  // namespace llm
