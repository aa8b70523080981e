#include <fmt/core.h>

#include <cstring>

#include "validate/self/matrix_verdict.h"
#include "validate/self/tally.h"

namespace llm {

std::size_t packed_row(const HyperParameters& config, const TensorRole& role, std::size_t row) {
  const bool halves =
      config.architecture->rope_pairs == RopePairs::kHalves && role.order == RowOrder::kRopeHeads;
  const std::size_t head = row / config.head_dim * config.head_dim;
  const std::size_t half = config.rope_dims / 2;
  if (!halves || row - head >= 2 * half) return row;
  return row - head < half ? head + 2 * (row - head) : head + 2 * (row - head - half) + 1;
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
      const float& value = values[packed_row(model.config(), *role, i)];
      if (std::memcmp(&value, view.data.data() + i * sizeof(float), sizeof(float)) != 0) break;
    }
    tally.add(i == n, [&] { return fmt::format("{}, element {}", view.name, i); });
  }
  return tally.result("vectors are the file's");
}

}  // namespace llm
