#pragma once

#include <span>

#include "engine/forward/convolution.h"
#include "engine/state/delta_state.h"

namespace llm {

/// The mixer of layers with a DeltaNetSpec (docs/numerics.md, "Gated DeltaNet" and "Mamba-2"):
/// products, the convolution, the states, the gated norm and its product, added to the residual.
/// Products run over all rows, the rest by sequence. T = rows of the pass.
class DeltaNet {
 public:
  /// Errors: kResource.
  static Result<DeltaNet> create(const Model& model, const PassSizes& sizes);

  /// Before the pass, by one thread.
  void plan(std::span<const PassSegment> segments) { convolution_.plan(segments); }
  /// Decode waits four times: after the products, the convolution, the states, and ssm_out.
  void run(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec);

 private:
  void multiply(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec,
                const InputRows& input);
  /// Heads of q and k become of their lengths (not of Mamba-2), rows of alpha and beta the gates.
  /// Task i is of 2 * n_k_heads + n_v_heads.
  void prepare(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec, std::size_t i);
  void change_state(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec,
                    const SequenceRows& of, std::size_t head);
  /// z becomes what ssm_out reads.
  void gate(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec, const SequenceRows& of,
            std::size_t head);
  /// The same of Mamba-2, of a row of the pass.
  void gate_row(PassWorker& at, std::size_t layer, const DeltaNetSpec& spec, std::size_t t);

  Convolution convolution_;
  // (T, features of the layer), with memory for the widest.
  AlignedBuffer<float> qkv_;    ///< channels
  AlignedBuffer<float> conv_;   ///< channels
  AlignedBuffer<float> z_;      ///< n_v_heads * v_dim
  AlignedBuffer<float> beta_;   ///< n_v_heads
  AlignedBuffer<float> alpha_;  ///< n_v_heads; later what states are multiplied by
  AlignedBuffer<float> delta_;  ///< n_v_heads * v_dim
};

}  // namespace llm
