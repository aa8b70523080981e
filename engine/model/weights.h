#ifndef LLM_ENGINE_MODEL_WEIGHTS_H_
#define LLM_ENGINE_MODEL_WEIGHTS_H_

#include <cstdint>
#include <functional>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "engine/model/model_file.h"
#include "engine/model/model_parts.h"
#include "quant/kernels/packed_matrix.h"

namespace llm {

using LayerWeights = LayerParts<PackedMatrix, AlignedBuffer<float>>;

/// All weights of a model, packed, in memory of their own.
struct ModelWeights : ModelParts<PackedMatrix, AlignedBuffer<float>> {
  const PackedMatrix& output() const { return own_output.bytes() > 0 ? own_output : token_embd; }
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
