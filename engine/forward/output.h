#pragma once

#include <cstddef>
#include <span>

#include "engine/forward/pass.h"

namespace llm {

/// The rows that are wanted: logits, a product of the normed residual, or that itself; of a model
/// with a trunk what nextn.post_projection makes of it. It needs no memory.
class Output {
 public:
  /// Waits twice at most.
  void run(PassWorker& at);

 private:
  static void run_logits(PassWorker& at, std::span<const std::size_t> rows);
  static void run_norms(PassWorker& at, std::span<const std::size_t> rows);
};

}  // namespace llm
