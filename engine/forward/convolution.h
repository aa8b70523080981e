#pragma once

#include <span>
#include <vector>

#include "engine/forward/pass.h"

namespace llm {

/// The rows of a sequence in a pass.
struct SequenceRows {
  std::size_t first_row;
  std::size_t n_rows;
  std::size_t first_position;
  SequenceState* state;

  /// Rows before the one whose state is the copy's (SequenceState::copy_states()).
  std::size_t rows_to_copy(std::size_t copy) const {
    return state->copy_position(copy) - first_position;
  }
};

/// The causal convolutions of the layers that have a part (docs/numerics.md, "Convolution"), by
/// sequence, and what sequences keep for them.
class Convolution {
 public:
  /// Errors: kResource.
  static Result<Convolution> create(const Model& model, LayerPart part);

  /// Before the pass, by one thread.
  void plan(std::span<const PassSegment> segments);
  std::span<const SequenceRows> sequences() const { return sequences_; }

  /// y = the convolution of these channels of x, both (T, channels of the layer), T rows of the
  /// pass; then the sequences' states have the last rows of x. Workers may run it for different
  /// channels at a time.
  void run(PassWorker& at, std::size_t layer, Worker::Range channels, const float* x, float* y);

 private:
  std::vector<SequenceRows> sequences_;
  std::vector<AlignedBuffer<float>> weights_;  ///< of each layer: (width, channels)
};

}  // namespace llm
