#include "engine/model/architecture.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "engine/model/tensor_roles.h"

namespace llm {
namespace {

constexpr std::array kNoExperts = {
    RefusedKey{"expert_count", "mixtures of experts are not read"},
};

constexpr std::array kArchitectures = {
    Architecture{.name = "llama", .refused_keys = kNoExperts},
};

constexpr bool roles_exist(const Architecture& architecture) {
  return std::ranges::all_of(architecture.roles, [](const RoleNeed& row) {
    return role_index(row.role) < kTensorRoles.size();
  });
}
static_assert(std::ranges::all_of(kArchitectures, roles_exist));

}  // namespace

std::string Architecture::key(std::string_view suffix) const {
  return fmt::format("{}.{}", name, suffix);
}

std::span<const Architecture> all_architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found == kArchitectures.end() ? nullptr : found;
}

Result<const GgufTensor*> require_tensor(const GgufFile& gguf, const Architecture& architecture,
                                         std::string_view name) {
  const GgufTensor* tensor = gguf.find_tensor(name);
  if (tensor != nullptr) return tensor;
  return Error{.code = ErrorCode::kMalformed,
               .field = fmt::format("tensor \"{}\"", name),
               .message = fmt::format("tensor is absent, need it: every model of architecture {} "
                                      "has one",
                                      architecture.name)};
}

}  // namespace llm
