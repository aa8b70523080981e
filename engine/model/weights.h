#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "engine/model/hyper_parameters.h"
#include "engine/model/model_parts.h"
#include "engine/model/progress.h"
#include "quant/kernels/packed_matrix.h"

namespace llm {

struct ModelFile;
class WeightStore;

using LayerWeights = LayerParts<PackedMatrix, AlignedBuffer<float>>;

/// All weights of a model: vectors in memory, matrices in a store.
struct ModelWeights : ModelParts<PackedMatrix, AlignedBuffer<float>> {
  std::shared_ptr<WeightStore> store;
  PackedMatrix trunk_embd;   ///< of a model with a trunk: that model's token_embd
  std::string packed_cache;  ///< the file that is mapped; empty: memory of this process

  const PackedMatrix& output() const { return own_output.bytes() > 0 ? own_output : token_embd; }
  /// Bytes read to decode one token: every matrix but the embedding (unless tied), and of experts
  /// those that are used.
  std::uint64_t bytes_per_token(const HyperParameters& config) const;
};

/// How weights are loaded.
struct WeightOptions {
  int threads = 1;
  bool defer = false;  ///< matrices stay in the file until they are packed by pack_more()
  std::string packed_cache = {};  ///< a directory; empty: none
  bool compare_cache = false;     ///< use a cache only if it holds what the file has, byte for byte
  Progress progress = {};         ///< may be empty
};

/// Reads the vectors of `model`, and packs its matrices or maps them from a cache. A cache that is
/// missing is written; one that cannot be used is replaced and warned of; so is a cache that cannot
/// be written.
/// Errors: kNonFinite naming tensor and block; kResource for memory; kIo; kIntegrity for a file
/// that changes while it is read. Cost: reads the file once, or the cache, or (deferred) little.
Result<ModelWeights> load_weights(const std::shared_ptr<const ModelFile>& model,
                                  const WeightOptions& options, std::vector<std::string>& warnings);

}  // namespace llm
