#pragma once

#include "engine/forward/pass.h"

namespace llm {

/// The input of a model whose layer reads next tokens: what eh_proj makes of the norms of a token's
/// embedding and of PassSegment::hidden, in place of the embedding.
class NextTokenInput {
 public:
  /// Errors: kResource.
  static Result<NextTokenInput> create(const Model& model, const PassSizes& sizes);

  /// Waits three times. Nothing where the model has no such layer.
  void run(PassWorker& at);

 private:
  AlignedBuffer<float> input_;  ///< (T, 2 * d_model)
};

}  // namespace llm
