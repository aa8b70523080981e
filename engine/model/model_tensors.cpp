#include "engine/model/model_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace llm {
namespace {

/// Parts of tensor names that change what a layer computes and that this engine does not know.
constexpr std::array<std::string_view, 12> kRefusedParts = {
    ".bias",    "_exps",         "_shexp",       "ffn_gate_inp", "attn_q_norm", "attn_k_norm",
    "attn_qkv", "attn_sub_norm", "ffn_sub_norm", "post_",        ".scale",      "rope_factors_"};

// Unknown tensors that get a warning of their own.
constexpr std::size_t kNamedUnknowns = 5;

class Binder {
 public:
  Binder(const GgufFile& gguf, const HyperParameters& config) : gguf_(gguf), config_(config) {}

  Result<ModelTensors> run();
  Status check_rest(bool strict, std::vector<std::string>& warnings) const;

 private:
  Result<LayerTensors> bind_layer(std::size_t layer);
  Result<TensorView> matrix(std::string name, std::size_t n_rows, std::size_t n_cols);
  Result<TensorView> vector(std::string name, std::size_t size);
  Result<const GgufTensor*> require(std::string_view name) const;
  Status bind_rope_freqs(ModelTensors& tensors);
  TensorView view(std::string name, const GgufTensor& tensor);

  static Error error(ErrorCode code, std::string_view name, const GgufTensor* tensor,
                     std::string message) {
    Error result{
        .code = code, .field = fmt::format("tensor \"{}\"", name), .message = std::move(message)};
    if (tensor != nullptr) result.offset = tensor->info_offset;
    return result;
  }

  const GgufFile& gguf_;
  const HyperParameters& config_;
  std::vector<std::string_view> used_;
};

std::string shape_text(const GgufTensor& tensor) {
  std::string text;
  std::uint32_t n = tensor.n_dims;
  while (n > 1 && tensor.dims[n - 1] == 1) --n;
  for (std::uint32_t d = 0; d < n; ++d) {
    text += fmt::format("{}{}", d == 0 ? "" : ", ", tensor.dims[d]);
  }
  return "[" + text + "]";
}

Result<const GgufTensor*> Binder::require(std::string_view name) const {
  const GgufTensor* tensor = gguf_.find_tensor(name);
  if (tensor == nullptr) {
    return error(ErrorCode::kMalformed, name, nullptr,
                 "tensor is absent, need it: every Llama has one");
  }
  return tensor;
}

TensorView Binder::view(std::string name, const GgufTensor& tensor) {
  used_.push_back(tensor.name);
  return TensorView{.name = std::move(name),
                    .type = tensor.type,
                    .n_rows = static_cast<std::size_t>(tensor.dims[1]),
                    .n_cols = static_cast<std::size_t>(tensor.dims[0]),
                    .data = gguf_.tensor_data(tensor)};
}

Result<TensorView> Binder::matrix(std::string name, std::size_t n_rows, std::size_t n_cols) {
  LLM_TRY(const GgufTensor* tensor, require(name));
  const auto& dims = tensor->dims;
  if (dims[0] != n_cols || dims[1] != n_rows || dims[2] != 1 || dims[3] != 1) {
    return error(ErrorCode::kMalformed, name, tensor,
                 fmt::format("found shape {}, need [{}, {}] (columns, rows)", shape_text(*tensor),
                             n_cols, n_rows));
  }
  return view(std::move(name), *tensor);
}

Result<TensorView> Binder::vector(std::string name, std::size_t size) {
  LLM_TRY(const GgufTensor* tensor, require(name));
  const auto& dims = tensor->dims;
  if (dims[0] != size || dims[1] != 1 || dims[2] != 1 || dims[3] != 1) {
    return error(ErrorCode::kMalformed, name, tensor,
                 fmt::format("found shape {}, need [{}]", shape_text(*tensor), size));
  }
  if (tensor->type != WeightType::kF32) {
    return error(ErrorCode::kUnsupported, name, tensor,
                 fmt::format("found type {}, need F32 (allowed types of a norm: F32)",
                             block_traits(tensor->type).name));
  }
  return view(std::move(name), *tensor);
}

Result<ModelTensors> Binder::run() {
  const std::size_t d = config_.d_model;
  ModelTensors tensors;
  LLM_TRY(tensors.token_embd, matrix("token_embd.weight", config_.n_vocab, d));
  for (std::size_t layer = 0; layer < config_.n_layers; ++layer) {
    LLM_TRY(LayerTensors bound, bind_layer(layer));
    tensors.layers.push_back(std::move(bound));
  }
  LLM_TRY(tensors.output_norm, vector("output_norm.weight", d));
  tensors.tied_output = gguf_.find_tensor("output.weight") == nullptr;
  if (tensors.tied_output) {
    tensors.output = tensors.token_embd;
  } else {
    LLM_TRY(tensors.output, matrix("output.weight", config_.n_vocab, d));
  }
  LLM_RETURN_IF_ERROR(bind_rope_freqs(tensors));
  return tensors;
}

Result<LayerTensors> Binder::bind_layer(std::size_t layer) {
  const std::size_t d = config_.d_model;
  const std::size_t q = config_.q_rows();
  const std::size_t kv = config_.kv_rows();
  const auto name = [layer](std::string_view role) {
    return fmt::format("blk.{}.{}.weight", layer, role);
  };
  LayerTensors tensors;
  LLM_TRY(tensors.attn_norm, vector(name("attn_norm"), d));
  LLM_TRY(tensors.attn_q, matrix(name("attn_q"), q, d));
  LLM_TRY(tensors.attn_k, matrix(name("attn_k"), kv, d));
  LLM_TRY(tensors.attn_v, matrix(name("attn_v"), kv, d));
  LLM_TRY(tensors.attn_output, matrix(name("attn_output"), d, q));
  LLM_TRY(tensors.ffn_norm, vector(name("ffn_norm"), d));
  LLM_TRY(tensors.ffn_gate, matrix(name("ffn_gate"), config_.d_ff, d));
  LLM_TRY(tensors.ffn_up, matrix(name("ffn_up"), config_.d_ff, d));
  LLM_TRY(tensors.ffn_down, matrix(name("ffn_down"), d, config_.d_ff));
  return tensors;
}

Status Binder::bind_rope_freqs(ModelTensors& tensors) {
  constexpr std::string_view kName = "rope_freqs.weight";
  const GgufTensor* tensor = gguf_.find_tensor(kName);
  if (tensor == nullptr) return Ok{};
  LLM_TRY(const TensorView bound, vector(std::string(kName), config_.rope_dims / 2));
  const GgufArray<float> values(bound.data);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] > 0.0F && std::isfinite(values[i])) continue;
    return error(ErrorCode::kMalformed, kName, tensor,
                 fmt::format("found {} at index {}, need finite numbers above 0", values[i], i));
  }
  tensors.rope_freqs = bound;
  return Ok{};
}

Status Binder::check_rest(bool strict, std::vector<std::string>& warnings) const {
  std::vector<std::string_view> used = used_;
  std::sort(used.begin(), used.end());
  std::size_t unknown = 0;
  for (const GgufTensor& tensor : gguf_.tensors()) {
    if (std::binary_search(used.begin(), used.end(), tensor.name)) continue;
    for (const std::string_view part : kRefusedParts) {
      if (tensor.name.find(part) == std::string_view::npos) continue;
      return error(ErrorCode::kUnsupported, tensor.name, &tensor,
                   fmt::format("found a tensor of the kind \"{}\", need a Llama without: it would "
                               "change the result and is not computed here",
                               part));
    }
    if (strict) {
      return error(ErrorCode::kMalformed, tensor.name, &tensor,
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
  Binder binder(gguf, config);
  LLM_TRY(ModelTensors tensors, binder.run());
  LLM_RETURN_IF_ERROR(binder.check_rest(strict, warnings));
  return tensors;
}

}  // namespace llm
