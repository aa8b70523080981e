#pragma once

#include <span>

#include "engine/forward/convolution.h"

namespace llm {

/// The mixer of layers with a ShortConvSpec (docs/numerics.md, "Short convolution"): three
/// products, the convolution between two gates, and its product, added to the residual. All but
/// the last are by channel, so a task goes through all of them. T = rows of the pass.
class ShortConv {
 public:
  /// Errors: kResource.
  static Result<ShortConv> create(const Model& model, const PassSizes& sizes);

  /// Before the pass, by one thread.
  void plan(std::span<const PassSegment> segments) { convolution_.plan(segments); }
  /// Decode waits twice: after the gated convolution, and after its product.
  void run(PassWorker& at, std::size_t layer, const ShortConvSpec& spec);

 private:
  Convolution convolution_;
  // (T, d_model)
  AlignedBuffer<float> b_;  ///< later the convolution
  AlignedBuffer<float> c_;
  AlignedBuffer<float> x_;  ///< later what the convolution reads
};

}  // namespace llm
