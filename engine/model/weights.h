#ifndef LLM_ENGINE_MODEL_WEIGHTS_H_
#define LLM_ENGINE_MODEL_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "engine/model/model_file.h"
#include "quant/kernels/packed_matrix.h"

namespace llm {

/// The weights of one decoder block; shapes as in LayerTensors.
struct LayerWeights {
  AlignedBuffer<float> attn_norm;
  PackedMatrix attn_q;
  PackedMatrix attn_k;
  PackedMatrix attn_v;
  PackedMatrix attn_output;
  AlignedBuffer<float> ffn_norm;
  PackedMatrix ffn_gate;
  PackedMatrix ffn_up;
  PackedMatrix ffn_down;
};

/// All weights of a model, packed, in memory of their own.
struct ModelWeights {
  PackedMatrix token_embd;
  std::vector<LayerWeights> layers;
  AlignedBuffer<float> output_norm;
  std::optional<PackedMatrix> own_output;  ///< absent when tied to token_embd
  AlignedBuffer<float> rope_divisors;      ///< rope_freqs.weight, may be empty

  const PackedMatrix& output() const { return own_output ? *own_output : token_embd; }
  /// Bytes read to decode one token: every matrix but the embedding (unless tied).
  std::uint64_t bytes_per_token() const;
};

/// Copies and packs every tensor of `model` on `n_threads` threads, giving the file's pages back as
/// it goes, and checks that all scales are finite.
/// @param progress  called with bytes done and bytes in all; may be empty
/// Errors: kNonFinite naming tensor and block; kResource for memory.
/// Cost: reads the file once.
Result<ModelWeights> load_weights(
    const ModelFile& model, int n_threads,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress);

}  // namespace llm

#endif  // LLM_ENGINE_MODEL_WEIGHTS_H_
