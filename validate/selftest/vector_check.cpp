#include <fmt/core.h>

#include <cstring>

#include "validate/selftest/matrix_verdict.h"
#include "validate/selftest/tally.h"

namespace llm {

std::size_t packed_row(const HyperParameters& config, const TensorRole& role, int layer,
                       std::size_t row) {
  const bool halves =
      config.architecture->rope_pairs == RopePairs::kHalves && role.order == RowOrder::kRopeHeads;
  if (!halves) return row;
  const AttentionSpec& spec = config.attention(static_cast<std::size_t>(layer));
  const std::size_t head = row / spec.head_dim * spec.head_dim;
  const std::size_t half = config.paired_dims(static_cast<std::size_t>(layer)) / 2;
  if (row - head >= 2 * half) return row;
  return row - head < half ? head + 2 * (row - head) : head + 2 * (row - head - half) + 1;
}

std::size_t row_in_view(const HyperParameters& config, const TensorRole& role, int layer,
                        std::size_t row) {
  const RoleNeed own = role_in(*config.architecture, role);
  if (!own.by_head) return row;
  std::size_t n = 0;
  std::size_t place = 0;
  for (const RoleNeed& need : config.architecture->roles) {
    if (need.role == role.name) place = n;
    if (need.in_file == own.in_file) ++n;
  }
  const LayerSpec& spec = config.layers[static_cast<std::size_t>(layer)];
  const DeltaNetSpec* const delta = spec.delta_net();
  std::size_t head_dim = delta == nullptr ? spec.head_dim() : delta->n_v_heads / delta->n_k_heads;
  if (spec.n_experts() > 0 && role.name.starts_with("ffn_")) head_dim = spec.d_ff();
  return (row / head_dim * n + place) * head_dim + row % head_dim;
}

CheckResult check_vectors(const Model& model, const ModelTensors& tensors) {
  Tally tally{.of = "vectors"};
  for (const auto& [role, layer] : roles_of_model(model.weights().layers.size())) {
    const TensorView& view = role->view.of(tensors, layer);
    if (role->is_matrix() || view.empty()) continue;
    const auto values = role->vector.of(model.weights(), layer).span();
    const std::size_t n = view.data.size() / sizeof(float);  // of all experts
    std::size_t i = 0;
    for (; i < n && values.size() == n; ++i) {
      const float& value = values[packed_row(model.config(), *role, layer, i)];
      if (std::memcmp(&value, view.data.data() + i * sizeof(float), sizeof(float)) != 0) break;
    }
    tally.add(i == n, [&] { return fmt::format("{}, element {}", view.name, i); });
  }
  return tally.result("vectors are the file's");
}

}  // namespace llm
