#pragma once

#include "engine/forward/pass.h"

namespace llm {

/// The feed-forward of a layer: down(activation(gate) * up) of the normed residual, added to it.
class FeedForward {
 public:
  /// Errors: kResource.
  static Result<FeedForward> create(const Model& model, const PassSizes& sizes);

  /// Decode waits twice: after gate and up, and after ffn_down.
  void run(PassWorker& at, std::size_t layer, const FfnSpec& spec);

 private:
  AlignedBuffer<float> gate_;  ///< (T, d_ff)
  AlignedBuffer<float> up_;    ///< (T, d_ff)
};

}  // namespace llm
