#ifndef LLM_ENGINE_MODEL_WEIGHTS_H_
#define LLM_ENGINE_MODEL_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/aligned_buffer.h"
#include "engine/model/model_parts.h"
#include "quant/kernels/packed_matrix.h"

namespace llm {

using LayerWeights = LayerParts<PackedMatrix, AlignedBuffer<float>>;

class WeightStore;

/// All weights of a model: vectors in memory, matrices in a store.
struct ModelWeights : ModelParts<PackedMatrix, AlignedBuffer<float>> {
  std::shared_ptr<WeightStore> store;
  std::string packed_cache;  ///< the file that is mapped; empty: memory of this process

  const PackedMatrix& output() const { return own_output.bytes() > 0 ? own_output : token_embd; }
  /// Bytes read to decode one token: every matrix but the embedding (unless tied).
  std::uint64_t bytes_per_token() const;
};

}  // namespace llm

#endif  // LLM_ENGINE_MODEL_WEIGHTS_H_
