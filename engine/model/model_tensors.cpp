#include "engine/model/model_tensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include "engine/model/tensor_name.h"
#include "engine/model/tensor_roles.h"

namespace llm {
namespace {

/// Parts of tensor names that change what a layer computes and that this engine does not know.
constexpr std::array<std::string_view, 13> kRefusedParts = {
    ".bias",       "_exps",         "_shexp",        "ffn_gate_inp", "attn_q_norm",
    "attn_k_norm", "attn_qkv",      "attn_sub_norm", "ffn_sub_norm", "post_",
    ".scale",      "rope_factors_", "nextn."};

// What may stand beside a matrix, in place of ".weight": factors of its products, and of its
// activations, which have scales of their own here.
constexpr std::string_view kScale = ".scale";
constexpr std::string_view kInputScale = ".input_scale";

// Unknown tensors that get a warning of their own.
constexpr std::size_t kNamedUnknowns = 5;

Error error_of(ErrorCode code, std::string_view name, const GgufTensor& tensor,
               std::string message) {
  return Error{code, fmt::format("tensor \"{}\"", name), std::move(message), tensor.info_offset};
}

/// Of a tensor that would change the result and is not computed.
Error refusal(const GgufTensor& tensor, std::string_view kind, const Architecture& architecture) {
  return error_of(
      ErrorCode::kUnsupported, tensor.name, tensor,
      fmt::format("found a tensor of the kind \"{}\", need none in a model of "
                  "architecture {}: it would change the result and is not computed here",
                  kind, architecture.name));
}

std::string shape_text(const GgufTensor& tensor) {
  std::string text;
  std::uint32_t n = tensor.n_dims;
  while (n > 1 && tensor.dims[n - 1] == 1) --n;
  for (std::uint32_t d = 0; d < n; ++d) {
    text += fmt::format("{}{}", d == 0 ? "" : ", ", tensor.dims[d]);
  }
  return "[" + text + "]";
}

Status check_shape(const TensorRole& role, const TensorView& view, const GgufTensor& tensor,
                   const HyperParameters& config, int layer) {
  const std::size_t rows = rows_in_tensor(config, role, layer).all;
  const std::size_t cols = role.cols.of(config, layer);
  const std::size_t stack = role.stack.of(config, layer);
  const auto& dims = tensor.dims;
  if (!role.is_matrix() && stack > 1) {
    if (dims[0] == cols && dims[1] == stack && dims[2] == 1 && dims[3] == 1) return Ok{};
    return error_of(ErrorCode::kMalformed, view.name, tensor,
                    fmt::format("found shape {}, need [{}, {}] (elements, experts)",
                                shape_text(tensor), cols, stack));
  }
  if (dims[0] == cols && dims[1] == rows && dims[2] == stack && dims[3] == 1) return Ok{};
  // Some vectors of Mamba-2 are columns.
  const bool is_column = !role.is_matrix() && dims[0] == 1 && dims[1] == cols;
  if (is_column && dims[2] == 1 && dims[3] == 1) return Ok{};
  if (stack > 1)
    return error_of(ErrorCode::kMalformed, view.name, tensor,
                    fmt::format("found shape {}, need [{}, {}, {}] (columns, rows, experts)",
                                shape_text(tensor), cols, rows, stack));
  return error_of(ErrorCode::kMalformed, view.name, tensor,
                  role.is_matrix()
                      ? fmt::format("found shape {}, need [{}, {}] (columns, rows)",
                                    shape_text(tensor), cols, rows)
                      : fmt::format("found shape {}, need [{}]", shape_text(tensor), cols));
}

Status check_type(const TensorRole& role, const TensorView& view, const GgufTensor& tensor) {
  if (role.is_matrix() || view.type == WeightType::kF32) return Ok{};
  return error_of(ErrorCode::kUnsupported, view.name, tensor,
                  fmt::format("found type {}, need F32 (allowed types of a vector: F32)",
                              block_traits(view.type).name));
}

/// Whether files call another role's tensor as this one is called elsewhere.
bool is_name_of_another(const Architecture& architecture, const TensorRole& role) {
  return std::ranges::any_of(architecture.roles, [&](const RoleNeed& other) {
    return other.in_file == role.name && other.role != role.name;
  });
}

/// "blk.0.attn_q.scale" of "blk.0.attn_q.weight".
std::string name_beside(std::string_view weight, std::string_view suffix) {
  return fmt::format("{}{}", weight.substr(0, weight.rfind('.')), suffix);
}

/// Whether a factor of the role's products may stand beside its matrix (docs/formats.md).
bool may_be_scaled(const TensorRole& role) {
  return role.is_matrix() && !role.name.ends_with("token_embd.weight") &&
         !role.name.starts_with("ffn_gate_inp");
}

/// The factors of the products of `weight`; none where the file has none.
Result<std::vector<float>> find_scales(const GgufFile& gguf, std::string_view weight,
                                       std::size_t stack) {
  const std::string name = name_beside(weight, kScale);
  const GgufTensor* tensor = gguf.find_tensor(name);
  if (tensor == nullptr) return std::vector<float>();
  if (tensor->type != WeightType::kF32)
    return error_of(ErrorCode::kUnsupported, name, *tensor,
                    fmt::format("found type {}, need F32", block_traits(tensor->type).name));
  const GgufArray<float> values(gguf.tensor_data(*tensor));
  if (values.size() != stack || tensor->dims[0] != stack)
    return error_of(ErrorCode::kMalformed, name, *tensor,
                    fmt::format("found shape {}, need [{}]", shape_text(*tensor), stack));
  std::vector<float> scales(stack);
  for (std::size_t i = 0; i < stack; ++i) {
    scales[i] = values[i];
    if (!std::isfinite(scales[i]))
      return error_of(ErrorCode::kNonFinite, name, *tensor,
                      fmt::format("found {} at index {}, need finite numbers", scales[i], i));
  }
  return scales;
}

/// Whether a layer reads another's keys and values in place of a tensor: files may have it, and no
/// result depends on it.
bool is_unread(const HyperParameters& config, const TensorRole& role, int layer) {
  if (role.part != LayerPart::kOwnKeys) return false;
  const AttentionSpec* spec = config.layers[static_cast<std::size_t>(layer)].attention();
  return spec != nullptr && spec->kv_of_layer;
}

/// The tensor of `role`, checked; empty where the file has none and need not.
Result<TensorView> bind(const GgufFile& gguf, const HyperParameters& config, const TensorRole& role,
                        int layer) {
  const Need need = need_of(config, role, layer);
  const std::string name = name_in_file(config, role, layer);
  const GgufTensor* tensor = gguf.find_tensor(name);
  if (need != Need::kRequired && tensor == nullptr) return TensorView{};
  if (need == Need::kAbsent) {
    if (is_name_of_another(*config.architecture, role) || is_unread(config, role, layer))
      return TensorView{};
    return refusal(*tensor, role.name, *config.architecture);
  }
  LLM_TRY(tensor, require_tensor(gguf, *config.architecture, name));
  TensorView view{.name = name,
                  .type = tensor->type,
                  .n_rows = static_cast<std::size_t>(tensor->dims[1] * tensor->dims[2]),
                  .n_cols = static_cast<std::size_t>(tensor->dims[0]),
                  .data = gguf.tensor_data(*tensor)};
  LLM_RETURN_IF_ERROR(check_shape(role, view, *tensor, config, layer));
  LLM_RETURN_IF_ERROR(check_type(role, view, *tensor));
  if (may_be_scaled(role)) {
    LLM_TRY(view.scales, find_scales(gguf, name, role.stack.of(config, layer)));
  }
  if (const RowsInTensor rows = rows_in_tensor(config, role, layer);
      role.is_matrix() && rows.all > role.rows.of(config, layer)) {
    const std::size_t stride = view.data.size() / view.n_rows;
    view.n_rows = role.rows.of(config, layer) * role.stack.of(config, layer);
    if (role_in(*config.architecture, role).by_head) return view;  // file_row() finds them
    view.first_row = rows.first;
    view.data = view.data.subspan(rows.first * stride, view.n_rows * stride);
  }
  return view;
}

Status check_rope_divisors(const GgufFile& gguf, const TensorView& view) {
  const GgufArray<float> values(view.data);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] > 0.0F && std::isfinite(values[i])) continue;
    return error_of(ErrorCode::kMalformed, view.name, *gguf.find_tensor(view.name),
                    fmt::format("found {} at index {}, need finite numbers above 0", values[i], i));
  }
  return Ok{};
}

/// Whether a tensor belongs to this model, and to no other of the file.
bool is_of_model(const HyperParameters& config, std::string_view name) {
  const auto block = layer_of_tensor(name);
  if (!block) return !config.is_mtp();
  return *block >= config.first_block && *block < config.first_block + config.n_layers;
}

/// Refuses or warns of tensors that are not in `used`: of a layer they would change the result.
Status check_rest(const GgufFile& gguf, const HyperParameters& config,
                  std::vector<std::string> used, bool strict, std::vector<std::string>& warnings) {
  std::ranges::sort(used);
  std::size_t unknown = 0;
  for (const GgufTensor& tensor : gguf.tensors()) {
    if (std::ranges::binary_search(used, tensor.name, std::less<std::string_view>())) continue;
    if (tensor.name == config.architecture->unread_tensor) continue;
    if (!is_of_model(config, tensor.name)) continue;
    for (const std::string_view part : kRefusedParts) {
      if (tensor.name.find(part) == std::string_view::npos) continue;
      return refusal(tensor, part, *config.architecture);
    }
    if (layer_of_tensor(tensor.name))
      return refusal(tensor, tensor.name.substr(tensor.name.find('.', 4) + 1),
                     *config.architecture);
    if (is_of_other_input(tensor.name)) continue;
    if (strict) {
      return error_of(ErrorCode::kMalformed, tensor.name, tensor,
                      "found an unknown tensor, need none (strict)");
    }
    if (unknown++ < kNamedUnknowns) {
      warnings.push_back(fmt::format("tensor \"{}\": unknown, ignored", tensor.name));
    }
  }
  if (unknown > kNamedUnknowns) {
    warnings.push_back(fmt::format("{} more unknown tensors ignored", unknown - kNamedUnknowns));
  }
  return Ok{};
}

}  // namespace

Result<ModelTensors> bind_tensors(const GgufFile& gguf, const HyperParameters& config, bool strict,
                                  std::vector<std::string>& warnings) {
  ModelTensors tensors;
  tensors.layers.resize(config.n_layers);
  std::vector<std::string> used;
  for (const auto& [role, layer] : roles_of_model(config.n_layers)) {
    LLM_TRY(TensorView view, bind(gguf, config, *role, layer));
    if (!view.empty()) used.push_back(view.name);
    for (const std::string_view suffix : {kScale, kInputScale})
      if (!view.empty() && may_be_scaled(*role)) used.push_back(name_beside(view.name, suffix));
    if (is_unread(config, *role, layer)) used.push_back(name_in_file(config, *role, layer));
    role->view.of(tensors, layer) = std::move(view);
  }
  LLM_RETURN_IF_ERROR(check_rope_divisors(gguf, tensors.rope_divisors));
  LLM_RETURN_IF_ERROR(check_rest(gguf, config, std::move(used), strict, warnings));
  return tensors;
}

}  // namespace llm
