#include "engine/model/adapter.h"

#include <fmt/core.h>

#include <cmath>
#include <map>
#include <utility>

#include "base/sha256.h"
#include "engine/gguf/gguf_split.h"
#include "engine/model/tensor_roles.h"
#include "quant/formats/dequantize.h"
#include "quant/formats/finite.h"

namespace llm {
namespace {

// Names and keys of llama.cpp's convert_lora_to_gguf.py.
constexpr std::string_view kA = ".lora_a";
constexpr std::string_view kB = ".lora_b";
constexpr std::string_view kAlpha = "adapter.lora.alpha";
constexpr std::string_view kInvocation = "adapter.alora.invocation_tokens";

Error tensor_error(ErrorCode code, const GgufTensor& tensor, std::string message,
                   std::string hint = {}) {
  return {.code = code,
          .field = fmt::format("tensor \"{}\"", tensor.name),
          .message = std::move(message),
          .offset = tensor.info_offset,
          .hint = std::move(hint)};
}

Status require_text(const GgufFile& gguf, std::string_view key, std::string_view wanted) {
  LLM_TRY(const std::string_view found, gguf.get_string_or(key, ""));
  if (found == wanted) return Ok{};
  return gguf.value_error(ErrorCode::kUnsupported, key,
                          fmt::format("found \"{}\", need \"{}\"", found, wanted));
}

Status check_finite(const GgufFile& gguf, const GgufTensor& tensor) {
  const auto block = first_nonfinite_block(tensor.type, gguf.tensor_data(tensor));
  if (!block) return Ok{};
  return tensor_error(ErrorCode::kNonFinite, tensor,
                      fmt::format("found NaN or Inf in {} block {}, need finite values",
                                  block_traits(tensor.type).name, *block));
}

/// The tensors in pairs.
Result<std::vector<FileUpdate>> pair_up(const GgufFile& gguf) {
  std::map<std::string_view, FileUpdate> by_name;
  for (const GgufTensor& tensor : gguf.tensors()) {
    const bool is_a = tensor.name.ends_with(kA);
    if (!is_a && !tensor.name.ends_with(kB))
      return tensor_error(ErrorCode::kUnsupported, tensor,
                          "found a tensor that is no part of a low-rank update, need names that "
                          "end with .lora_a and .lora_b");
    const std::string_view name = tensor.name.substr(0, tensor.name.size() - kA.size());
    FileUpdate& update = by_name[name];
    update.name = name;
    (is_a ? update.a : update.b) = &tensor;
    if (tensor.dims[2] > 1 || tensor.dims[3] > 1)
      return tensor_error(ErrorCode::kUnsupported, tensor,
                          fmt::format("found {} matrices, need one: updates of experts are not "
                                      "computed here",
                                      tensor.dims[2] * tensor.dims[3]));
    LLM_RETURN_IF_ERROR(check_finite(gguf, tensor));
  }
  std::vector<FileUpdate> updates;
  for (const auto& [name, update] : by_name) {
    const auto& [_, a, b] = update;
    if (a == nullptr || b == nullptr) {
      const GgufTensor& alone = a == nullptr ? *b : *a;
      return tensor_error(
          ErrorCode::kMalformed, alone,
          fmt::format("found no tensor \"{}{}\" beside it, need both", name, a ? kB : kA));
    }
    if (a->dims[1] != b->dims[0])
      return tensor_error(
          ErrorCode::kMalformed, *b,
          fmt::format("found rank {}, need {} (that of \"{}\")", b->dims[0], a->dims[1], a->name));
    updates.push_back(update);
  }
  if (updates.empty()) return malformed("tensors", "found none, need a low-rank update");
  return updates;
}

Result<AdapterFile> read_adapter(OpenGguf open) {
  const GgufFile& gguf = open.gguf;
  LLM_RETURN_IF_ERROR(require_text(gguf, "general.type", "adapter"));
  LLM_RETURN_IF_ERROR(require_text(gguf, "adapter.type", "lora"));
  if (gguf.find(kInvocation) != nullptr)
    return gguf.value_error(ErrorCode::kUnsupported, kInvocation,
                            "found an adapter that begins at these tokens (aLoRA), need one of "
                            "whole texts");
  LLM_TRY(const std::string_view architecture, gguf.get_string("general.architecture"));
  LLM_TRY(const float alpha, gguf.get_float_or(kAlpha, 0));
  if (!std::isfinite(alpha))
    return gguf.value_error(ErrorCode::kNonFinite, kAlpha,
                            fmt::format("found {}, need a finite number", alpha));
  LLM_TRY(auto updates, pair_up(gguf));
  LLM_RETURN_IF_ERROR(open.file.check_unchanged());
  return AdapterFile{.file = std::move(open.file),
                     .gguf = std::move(open.gguf),
                     .architecture = std::string(architecture),
                     .alpha = alpha,
                     .updates = std::move(updates)};
}

/// The rows of B that a role's matrix packs, in its order.
std::vector<std::byte> rows_of_role(const HyperParameters& config, const TensorRole& role,
                                    int layer, std::size_t n_rows, const GgufTensor& b,
                                    std::span<const std::byte> data) {
  const bool by_head = role_in(*config.architecture, role).by_head;
  const std::size_t first = by_head ? 0 : rows_in_tensor(config, role, layer).first;
  const std::size_t stride = row_bytes(b.type, b.dims[0]);
  std::vector<std::byte> rows(n_rows * stride);
  for (std::size_t r = 0; r < n_rows; ++r) {
    const auto from = data.subspan((first + file_row(config, role, layer, r)) * stride, stride);
    std::ranges::copy(from, rows.begin() + static_cast<std::ptrdiff_t>(r * stride));
  }
  return rows;
}

/// How the model's file calls a tensor of that role, its columns and its rows.
GgufTensor tensor_of_role(const HyperParameters& config, const TensorRole& role, int layer,
                          std::string_view name) {
  GgufTensor tensor{.name = name};
  tensor.dims = {role.cols.of(config, layer), rows_in_tensor(config, role, layer).all,
                 role.stack.of(config, layer), 1};
  return tensor;
}

}  // namespace

Result<AdapterFile> open_adapter_file(const std::string& path) {
  LLM_TRY(OpenGguf open, open_gguf_file(path));
  auto adapter = read_adapter(std::move(open));
  if (!adapter.ok()) return in_file(std::move(adapter).error(), path);
  return adapter;
}

Status check_update(const FileUpdate& update, const GgufTensor* tensor) {
  const auto is_in_name = [&](std::string_view part) {
    return update.name.find(part) != std::string_view::npos;
  };
  if (is_in_name("token_embd.") || is_in_name("norm"))
    return tensor_error(ErrorCode::kUnsupported, *update.a,
                        "found an update of a tensor that no product reads, need updates of "
                        "matrices");
  if (tensor == nullptr)
    return tensor_error(ErrorCode::kMalformed, *update.a,
                        "found an update of a tensor that the model does not have",
                        "the adapter belongs to another model");
  if (tensor->dims[2] > 1)
    return tensor_error(ErrorCode::kUnsupported, *update.a,
                        fmt::format("found an update of {} experts, need one of a matrix: such "
                                    "updates are not computed here",
                                    tensor->dims[2]));
  if (update.a->dims[0] != tensor->dims[0])
    return tensor_error(ErrorCode::kMalformed, *update.a,
                        fmt::format("found {} columns, need {} (those of the model's tensor)",
                                    update.a->dims[0], tensor->dims[0]));
  if (update.b->dims[1] != tensor->dims[1])
    return tensor_error(ErrorCode::kMalformed, *update.b,
                        fmt::format("found {} rows, need {} (those of the model's tensor)",
                                    update.b->dims[1], tensor->dims[1]));
  return Ok{};
}

void merge_update(const AdapterFile& adapter, const FileUpdate& update, float scale,
                  std::size_t first_row, std::span<float> rows) {
  const auto row_of = [&](const GgufTensor& tensor, std::size_t r) {
    const std::size_t stride = row_bytes(tensor.type, tensor.dims[0]);
    std::vector<float> row(tensor.dims[0]);
    contract::dequantize_row(tensor.type,
                             adapter.gguf.tensor_data(tensor).subspan(r * stride, stride), row);
    return row;
  };
  const double s = adapter_factor(adapter.alpha, scale, update.rank());
  std::vector<std::vector<float>> a;
  for (std::size_t j = 0; j < update.rank(); ++j) a.push_back(row_of(*update.a, j));
  const std::size_t n_cols = update.a->dims[0];
  std::vector<double> sum(n_cols);
  for (std::size_t r = 0; r < rows.size() / n_cols; ++r) {
    const std::vector<float> b = row_of(*update.b, first_row + r);
    std::ranges::fill(sum, 0.0);
    for (std::size_t j = 0; j < a.size(); ++j)
      for (std::size_t k = 0; k < n_cols; ++k) sum[k] += double{b[j]} * double{a[j][k]};
    for (std::size_t k = 0; k < n_cols; ++k) {
      float& w = rows[r * n_cols + k];
      w = static_cast<float>(double{w} + s * sum[k]);
    }
  }
}

Result<std::shared_ptr<const Adapter>> Adapter::load(const std::string& path,
                                                     const HyperParameters& config,
                                                     const ModelWeights& weights, bool hash_file) {
  LLM_TRY(const AdapterFile in, open_adapter_file(path));
  const auto adapter = std::make_shared<Adapter>();
  adapter->path_ = path;
  if (hash_file) adapter->file_sha256_ = file_sha256_hex(in.file, {});
  Status status = adapter->pack(in, config, weights);
  if (status.ok()) status = in.file.check_unchanged();
  if (!status.ok()) return in_file(std::move(status).error(), path);
  return std::shared_ptr<const Adapter>(adapter);
}

Status Adapter::pack(const AdapterFile& in, const HyperParameters& config,
                     const ModelWeights& weights) {
  if (in.architecture != config.architecture->name)
    return in.gguf.value_error(ErrorCode::kMalformed, "general.architecture",
                               fmt::format("found \"{}\", need \"{}\" (the model's)",
                                           in.architecture, config.architecture->name));
  std::multimap<std::string, InLayer<TensorRole>> roles;
  for (const auto& in_layer : roles_of_model(config.n_layers)) {
    const auto& [role, layer] = in_layer;
    if (role->is_matrix() && role->matrix.of(weights, layer).bytes() > 0)
      roles.emplace(name_in_file(config, *role, layer), in_layer);
  }
  std::map<int, std::size_t> widths;  // of each layer
  for (const FileUpdate& update : in.updates) {
    const auto [first, last] = roles.equal_range(std::string(update.name));
    if (first == last) return check_update(update, nullptr);
    for (auto it = first; it != last; ++it) {
      const auto& [role, layer] = it->second;
      const GgufTensor tensor = tensor_of_role(config, *role, layer, update.name);
      LLM_RETURN_IF_ERROR(check_update(update, &tensor));
      const PackedMatrix& w = role->matrix.of(weights, layer);
      const auto rows =
          rows_of_role(config, *role, layer, w.n_rows(), *update.b, in.gguf.tensor_data(*update.b));
      LowRankUpdate packed;
      packed.alpha = in.alpha;
      packed.place = widths[layer];
      LLM_TRY(packed.a, PackedMatrix::pack(update.a->type, update.rank(), w.n_cols(),
                                           in.gguf.tensor_data(*update.a), update.a->name));
      LLM_TRY(packed.b,
              PackedMatrix::pack(update.b->type, w.n_rows(), update.rank(), rows, update.b->name));
      widths[layer] += update.rank();
      width_ = std::max(width_, widths[layer]);
      updates_.emplace(&w, std::move(packed));
    }
  }
  return Ok{};
}

}  // namespace llm
