#include "engine/model/weights.h"

#include <fmt/core.h>

#include <utility>

#include "engine/model/packed_cache.h"
#include "engine/model/tensor_roles.h"
#include "engine/model/weight_store.h"
#include "quant/formats/finite.h"

namespace llm {
namespace {

using Store = std::shared_ptr<WeightStore>;

Result<AlignedBuffer<float>> load_vector(const ModelFile& model, const TensorRole& role, int layer,
                                         const TensorView& tensor) {
  if (const auto block = first_nonfinite_block(tensor.type, tensor.data))
    return nonfinite_error(model, tensor, *block);
  const GgufArray<float> in_file(tensor.data);  // vectors are F32
  LLM_TRY(auto values, AlignedBuffer<float>::allocate(in_file.size(), tensor.name));
  for (std::size_t i = 0; i < in_file.size(); ++i)
    values[i] = in_file[file_row(model.config, role, layer, i)];
  return values;
}

/// Packs in memory, now or later. Of a matrix of which a pass needs few rows, an embedding that is
/// not the output as well, all scales are checked now, so that none is found after the first token.
Result<Store> pack(const std::shared_ptr<const ModelFile>& model, const WeightOptions& options) {
  LLM_TRY(Store store, WeightStore::reserve(model));
  if (!options.defer) {
    LLM_RETURN_IF_ERROR(store->pack_all(options.threads, options.progress));
  } else if (!model->tensors.own_output.empty()) {
    LLM_RETURN_IF_ERROR(store->check_finite(store->plan().matrices.front(), options.threads));
  }
  return store;
}

/// Maps the cache, or packs and writes it.
Result<Store> through_cache(const std::shared_ptr<const ModelFile>& model,
                            const WeightOptions& options, std::string& mapped,
                            std::vector<std::string>& warnings) {
  const std::string path = packed_cache_path(options.packed_cache, model->file.path());
  LLM_TRY(WeightPlan plan, plan_weights(*model));
  auto cache = open_packed_cache(path, *model, plan, options.compare_cache, options.threads,
                                 options.progress);
  if (cache.ok() && *cache) {
    mapped = path;
    return WeightStore::mapped(std::move(plan), std::move(**cache));
  }
  if (!cache.ok())
    warnings.push_back(fmt::format("packed cache: {}; packing again", cache.error().to_string()));
  model->file.wait_for_another_stamp();
  LLM_TRY(Store store, pack(model, {.threads = options.threads, .progress = options.progress}));
  const Status written =
      write_packed_cache(path, *model, plan, store->panels(), options.threads, options.progress);
  if (!written.ok())
    warnings.push_back(
        fmt::format("packed cache: {}; continuing without it", written.error().to_string()));
  return store;
}

}  // namespace

Result<ModelWeights> load_weights(const std::shared_ptr<const ModelFile>& model,
                                  const WeightOptions& options,
                                  std::vector<std::string>& warnings) {
  ModelWeights weights;
  weights.layers.resize(model->config.n_layers);
  for (const auto& [role, layer] : roles_of_model(model->config.n_layers)) {
    const TensorView& view = tensor_of(*model, *role, layer);
    if (role->is_matrix() || view.empty()) continue;
    LLM_TRY(role->vector.of(weights, layer), load_vector(*model, *role, layer, view));
  }
  LLM_TRY(weights.store, options.packed_cache.empty()
                             ? pack(model, options)
                             : through_cache(model, options, weights.packed_cache, warnings));
  for (const PlacedMatrix& placed : weights.store->plan().matrices)
    placed.role->matrix.of(weights, placed.layer) = weights.store->matrix(placed);
  return weights;
}

std::uint64_t ModelWeights::bytes_per_token(const HyperParameters& config) const {
  std::uint64_t bytes = output().bytes();
  for (const auto& [role, layer] : roles_of_model(config.n_layers)) {
    if (role->is_matrix() && role->per_layer)
      bytes += role->share_used(config, layer, role->matrix.of(*this, layer).bytes());
  }
  return bytes;
}

}  // namespace llm
