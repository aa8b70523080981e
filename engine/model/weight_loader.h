#ifndef LLM_ENGINE_MODEL_WEIGHT_LOADER_H_
#define LLM_ENGINE_MODEL_WEIGHT_LOADER_H_

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model/model_file.h"
#include "engine/model/progress.h"
#include "engine/model/weights.h"

namespace llm {

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

#endif  // LLM_ENGINE_MODEL_WEIGHT_LOADER_H_
