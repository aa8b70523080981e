#pragma once

#include <span>
#include <vector>

#include "engine/forward/pass.h"
#include "engine/state/delta_state.h"

namespace llm {

/// The mixer of layers with a DeltaNetSpec (docs/numerics.md, "Gated DeltaNet"): products, the
/// convolution, the states, the gated norm and its product, added to the residual. Products run
/// over all rows, the rest by sequence. T = rows of the pass.
class DeltaNet {
 public:
  /// Errors: kResource.
  static Result<DeltaNet> create(const Model& model, const PassSizes& sizes);

  /// Before the pass, by one thread.
  void plan(std::span<const PassSegment> segments);
  /// Decode waits four times: after the products, the convolution, the states, and ssm_out.
  void run(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec);

 private:
  /// The rows of a sequence.
  struct Run {
    std::size_t first_row;
    std::size_t n_rows;
    std::size_t first_position;
    SequenceState* state;

    /// Rows before the one whose state is the copy's.
    std::size_t rows_to_copy(std::size_t copy) const {
      return state->copy_position(copy) - first_position;
    }
  };
  /// Neighbouring channels of the convolution.
  struct Channels {
    std::size_t begin;
    std::size_t n;
  };
  static DeltaState state_of(const Run& run, std::size_t layer, const DeltaNetSpec& spec) {
    return {spec, run.state->state(layer)};
  }
  static DeltaState copy_of(const Run& run, std::size_t copy, std::size_t layer,
                            const DeltaNetSpec& spec) {
    return {spec, run.state->copied_state(copy, layer)};
  }

  void multiply(PassWorker& at, std::size_t layer, const InputRows& input);
  /// Of all rows; then the states have the last rows of these channels.
  void convolve(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec, Channels channels);
  /// Heads of q and k become of their lengths, rows of alpha and beta the gates. Task i is of
  /// 2 * n_k_heads + n_v_heads.
  void prepare(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec, std::size_t i);
  void change_state(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec, const Run& run,
                    std::size_t head);
  /// z becomes what ssm_out reads.
  void gate(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec, const Run& run,
            std::size_t head);

  std::vector<Run> runs_;
  std::vector<AlignedBuffer<float>> conv_weights_;  ///< of each layer: (conv_width, channels)
  // (T, features of the layer), with memory for the widest.
  AlignedBuffer<float> qkv_;    ///< channels
  AlignedBuffer<float> conv_;   ///< channels
  AlignedBuffer<float> z_;      ///< n_v_heads * v_dim
  AlignedBuffer<float> beta_;   ///< n_v_heads
  AlignedBuffer<float> alpha_;  ///< n_v_heads; later what states are multiplied by
  AlignedBuffer<float> delta_;  ///< n_v_heads * v_dim
};

}  // namespace llm
