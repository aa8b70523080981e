#pragma once

#include <set>

#include "engine/model/model.h"
#include "engine/model/tensor_roles.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {

struct TinyAdapterOptions {
  std::size_t rank = 4;
  std::uint64_t seed = 1;
  float alpha = 6;
  float amplitude = 0.2F;
  WeightType type = WeightType::kF32;  ///< F32 where its blocks do not fit
};

/// An adapter of random numbers that updates every matrix of `model` but the embeddings and those
/// of experts.
inline TinyGguf tiny_adapter(const Model& model, const TinyAdapterOptions& options = {}) {
  TinyGguf adapter;
  adapter.set_string("general.architecture", model.config().architecture->name);
  adapter.set_string("general.type", "adapter");
  adapter.set_string("adapter.type", "lora");
  adapter.set_f32("adapter.lora.alpha", options.alpha);
  std::set<std::string> names;
  const auto add = [&](const std::string& name, std::size_t rows, std::size_t cols) {
    const bool fits = cols % block_traits(options.type).block_weights == 0;
    const WeightType type = fits ? options.type : WeightType::kF32;
    const std::uint64_t seed = options.seed * 1000 + adapter.tensors.size();
    adapter.tensors.push_back({.name = name,
                               .dims = {cols, rows},
                               .type = static_cast<std::uint32_t>(type),
                               .data = random_weights(type, rows, cols, options.amplitude, seed)});
  };
  for (const auto& [role, layer] : roles_of_model(model.config().n_layers)) {
    if (!role->is_matrix() || role->matrix.of(model.weights(), layer).bytes() == 0) continue;
    const std::string name = name_in_file(model.config(), *role, layer);
    const bool is_single = role->stack.of(model.config(), layer) == 1;
    if (!is_single || role->name.ends_with("token_embd.weight") || !names.insert(name).second)
      continue;
    add(name + ".lora_a", options.rank, role->cols.of(model.config(), layer));
    add(name + ".lora_b", rows_in_tensor(model.config(), *role, layer).all, options.rank);
  }
  return adapter;
}

}  // namespace llm::test
