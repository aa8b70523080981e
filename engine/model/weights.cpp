#include "engine/model/weights.h"

#include "engine/model/tensor_roles.h"

namespace llm {

std::uint64_t ModelWeights::bytes_per_token() const {
  std::uint64_t bytes = output().bytes();
  for (const auto& [role, layer] : roles_of_model(layers.size())) {
    if (role->is_matrix() && role->per_layer) bytes += role->matrix.of(*this, layer).bytes();
  }
  return bytes;
}

}  // namespace llm
