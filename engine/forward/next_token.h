#pragma once

#include "engine/forward/pass.h"

namespace llm {

/// The input of a model whose layer reads next tokens: what eh_proj makes of the norms of a token's
/// embedding and of PassSegment::hidden, in place of the embedding. Of a model with a trunk: what
/// nextn.pre_projection makes of these two, the embedding the trunk's.
class NextTokenInput {
 public:
  /// Errors: kResource.
  static Result<NextTokenInput> create(const Model& model, const PassSizes& sizes);

  /// Waits three times. Nothing where the model has no such layer.
  void run(PassWorker& at);

 private:
  /// A row of the trunk's embedding, as it is there.
  void embed(PassWorker& at, TokenId token, std::span<float> to);

  AlignedBuffer<float> input_;  ///< (T, 2 * d_model), or (T, d_trunk_input)
  std::vector<AlignedBuffer<std::byte>> embedding_rows_;  ///< of each worker: one, as in the file
};

}  // namespace llm
