#pragma once

#include "engine/forward/pass.h"

namespace llm {

/// Inputs of each layer besides the residual stream, made of the token (docs/numerics.md,
/// "Per-layer inputs"), and the multiplication at a layer's end. Does nothing in models whose
/// layers have neither.
class LayerInputs {
 public:
  /// Errors: kResource.
  static Result<LayerInputs> create(const Model& model, const PassSizes& sizes);

  /// All layers' inputs of every row, of which the residual stream is the embedding. Waits three
  /// times.
  void prepare(PassWorker& at);
  /// At the end of a layer. Decode waits twice, and once more for the multiplication.
  void run(PassWorker& at, std::size_t layer);

 private:
  /// Adds to the residual stream what the layer makes of its inputs.
  void add_inputs(PassWorker& at, std::size_t layer);

  std::vector<AlignedBuffer<std::byte>> embedding_rows_;  ///< of each worker: one, as in the file
  AlignedBuffer<float> inputs_;                           ///< (T, d_inputs)
  AlignedBuffer<float> projected_;                        ///< (T, d_inputs)
  AlignedBuffer<float> gate_;                             ///< (T, d_input)
};

}  // namespace llm
