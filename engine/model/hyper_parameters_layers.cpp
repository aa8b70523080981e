#include <fmt/core.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "engine/model/hyper_parameters_reader.h"
#include "engine/model/tensor_name.h"
#include "engine/model/tensor_roles.h"
#include "quant/numerics/contract.h"

namespace llm {

Status HyperParametersReader::read_experts() {
  if (!config_.architecture->has_experts) return Ok{};
  const std::string used_key = key_of(keys().n_experts_used);
  LLM_TRY(const std::size_t n_experts, read_dim(key_of(keys().n_experts)));
  LLM_TRY(const std::size_t n_used, read_dim(used_key));
  if (n_used > n_experts)
    return malformed(used_key,
                     fmt::format("found {}, need at most expert_count {}", n_used, n_experts));
  // An expert's rows are whole panels of the tensor that holds all experts.
  const auto check = [this](std::string_view key, std::size_t size) -> Status {
    if (size % contract::kPanelRows == 0) return Ok{};
    return unsupported(key_of(key), fmt::format("found {}, need a multiple of {} in a model with "
                                                "experts",
                                                size, contract::kPanelRows));
  };
  LLM_RETURN_IF_ERROR(check(keys().d_model, config_.d_model));
  FfnSpec spec{
      .n_experts = n_experts, .n_used = n_used, .own_norms = config_.architecture->has_ffn_norms};
  spec.weighs_shared = config_.architecture->weighs_shared;
  LLM_RETURN_IF_ERROR(read_router(spec));
  std::uint64_t n_dense = 0;
  std::string_view width_key = keys().d_ff;
  if (config_.architecture->has_dense_layers) {
    width_key = keys().d_expert;
    const std::string key = key_of(keys().n_dense_layers);
    LLM_TRY(n_dense, gguf_.get_unsigned_or(key, 0));
    if (n_dense > config_.n_layers)
      return malformed(key, fmt::format("found {}, need at most {} = {}", n_dense,
                                        key_of(keys().n_layers), config_.n_layers));
  }
  LLM_TRY(const PerLayer widths, read_dims(key_of(width_key)));
  for (std::size_t i = static_cast<std::size_t>(n_dense); i < config_.n_layers; ++i) {
    spec.d_ff = static_cast<std::size_t>(widths[i]);
    LLM_RETURN_IF_ERROR(check(width_key, spec.d_ff));
    LLM_TRY(spec.d_shared, read_shared_width(spec.d_ff));
    config_.layers[i].ffns = {spec};
  }
  if (config_.architecture->has_ffn_norms)
    config_.router_divisor = static_cast<float>(std::sqrt(static_cast<double>(config_.d_model)));
  return Ok{};
}

/// The width of the expert that every row goes through; 0: there is none.
Result<std::size_t> HyperParametersReader::read_shared_width(std::size_t d_expert) const {
  const Architecture& architecture = *config_.architecture;
  if (!architecture.has_shared_expert) return std::size_t{0};
  if (!architecture.counts_shared) {
    const std::string width_key = key_of(keys().d_shared);
    if (architecture.weighs_shared) return read_dim(width_key);
    if (gguf_.find(width_key) == nullptr) return std::size_t{0};
    LLM_TRY(const PerLayer widths, read_per_layer(width_key));
    return std::ranges::count(widths, 0U) == std::ssize(widths) ? std::size_t{0}
                                                                : read_dim(width_key);
  }
  const std::string key = key_of(keys().n_shared_experts);
  LLM_TRY(const std::uint64_t n, gguf_.get_unsigned_or(key, 0));
  if (n > kMaxDim / d_expert)
    return malformed(
        key, fmt::format("found {}, need at most {} of width {}", n, kMaxDim / d_expert, d_expert));
  return static_cast<std::size_t>(n) * d_expert;
}

/// How the experts are chosen.
Status HyperParametersReader::read_router(FfnSpec& spec) const {
  spec.router = config_.architecture->router;
  // llama.cpp's numbers (llama_expert_gating_func_type in its src/llama-hparams.h).
  const bool is_softmax = spec.router == Router::kSoftmax;
  const std::uint64_t known = is_softmax ? 1 : 2;
  const std::string key = key_of(keys().router);
  LLM_TRY(const std::uint64_t found, gguf_.get_unsigned_or(key, known));
  if (found != known)
    return unsupported(key, fmt::format("found {}, need {}: weights of experts are {} here", found,
                                        known, is_softmax ? "a softmax" : "sigmoids"));
  LLM_TRY(spec.weights_add_up,
          gguf_.get_bool_or(key_of(keys().experts_add_up), config_.architecture->weights_add_up));
  const std::string scale_key = key_of(keys().experts_scale);
  LLM_TRY(spec.experts_scale, gguf_.get_float_or(scale_key, 1));
  if (spec.experts_scale == 0) spec.experts_scale = 1;  // a key that is not there
  LLM_TRY(spec.experts_scale, read_positive(scale_key, spec.experts_scale));
  return Ok{};
}

Result<std::vector<bool>> HyperParametersReader::read_recurrent_layers() const {
  const std::string key = key_of(keys().recurrent_layers);
  LLM_TRY(std::vector<bool> out, read_flags(key));
  if (!out.empty()) return out;
  if (const GgufValue* value = gguf_.find(key); value != nullptr)
    return malformed(key, fmt::format("found {}, need an array of BOOL", value->type_name()));
  const std::string period_key = key_of(keys().full_attention_period);
  LLM_TRY(const std::uint64_t period,
          gguf_.get_unsigned_or(period_key, config_.architecture->full_attention_period));
  if (period == 0) return malformed(period_key, "found 0, need at least 1");
  for (std::size_t i = 0; i < config_.n_layers; ++i) out.push_back((i + 1) % period != 0);
  return out;
}

Status join_trunk(const GgufFile& gguf, const HyperParameters& trunk, HyperParameters& config) {
  const Architecture& architecture = *config.architecture;
  const auto differs = [&](ErrorCode code, std::string_view key, std::size_t found,
                           std::size_t needed, std::string_view what) {
    return gguf.value_error(code, architecture.key(key),
                            fmt::format("found {}, need {}: {} of the model that this file is "
                                        "given as a draft of",
                                        found, needed, what));
  };
  if (trunk.architecture->name != architecture.trunk)
    return gguf.value_error(
        ErrorCode::kUsage, "general.architecture",
        fmt::format("found {}, a draft of {} models, need a draft of a {} model", architecture.name,
                    architecture.trunk, trunk.architecture->name));
  if (config.d_trunk != trunk.d_model)
    return differs(ErrorCode::kUsage, architecture.keys.d_trunk, config.d_trunk, trunk.d_model,
                   "the embedding length");
  config.trunk_embedding_scale = trunk.embedding_scale;
  for (LayerSpec& layer : config.layers) {
    AttentionSpec& spec = *layer.attention();
    std::size_t from = trunk.n_layers;
    while (from > 0 && (!trunk.layers[from - 1].has_own_keys() ||
                        (trunk.layers[from - 1].window() > 0) != (spec.window > 0)))
      --from;
    if (from == 0)
      return gguf.value_error(ErrorCode::kMalformed,
                              architecture.key(architecture.keys.window_period),
                              fmt::format("found a layer {} a window, need one of the kinds of its "
                                          "model's layers",
                                          spec.window > 0 ? "with" : "without"));
    const AttentionSpec& of_trunk = trunk.attention(from - 1);
    const HyperParameterKeys& keys = architecture.keys;
    if (spec.n_kv_heads != of_trunk.n_kv_heads)
      return differs(ErrorCode::kMalformed, keys.n_kv_heads, spec.n_kv_heads, of_trunk.n_kv_heads,
                     "the heads");
    if (spec.head_dim != of_trunk.head_dim)
      return differs(ErrorCode::kMalformed, spec.window > 0 ? keys.window_head_dim : keys.head_dim,
                     spec.head_dim, of_trunk.head_dim, "the head dim");
    if (spec.window != of_trunk.window)
      return differs(ErrorCode::kMalformed, keys.sliding_window, spec.window, of_trunk.window,
                     "the window");
    if (spec.window == 1)
      return gguf.value_error(ErrorCode::kUnsupported, architecture.key(keys.sliding_window),
                              "found 1, need at least 2: such layers see no key");
    spec.kv_of_layer = from - 1;
    // A token has no key yet, so its window is of one less.
    if (spec.window > 0) --spec.window;
  }
  return Ok{};
}

Result<std::size_t> HyperParametersReader::read_conv_width() const {
  const std::string key = key_of(keys().conv_width);
  LLM_TRY(const std::size_t width, read_dim(key));
  if (width < 2 || width > kMaxConvWidth)
    return unsupported(key, fmt::format("found {}, need 2 to {}", width, kMaxConvWidth));
  return width;
}

Status HyperParametersReader::read_short_convs() {
  if (!config_.architecture->has_short_convs) return Ok{};
  LLM_TRY(const std::size_t width, read_conv_width());
  for (LayerSpec& layer : config_.layers)
    if (auto* spec = std::get_if<ShortConvSpec>(&layer.mixer)) spec->conv_width = width;
  return Ok{};
}

Status HyperParametersReader::read_delta_nets() {
  const bool is_mamba = config_.architecture->has_mambas;
  if (config_.architecture->full_attention_period == 0 && !is_mamba) return Ok{};
  std::vector<bool> recurrent;
  if (is_mamba) {
    for (const LayerSpec& layer : config_.layers) recurrent.push_back(layer.delta_net() != nullptr);
  } else {
    LLM_TRY(recurrent, read_recurrent_layers());
  }
  const std::string v_heads_key = key_of(keys().delta_v_heads);
  const std::string v_rows_key = key_of(keys().delta_v_rows);
  LLM_TRY(const std::size_t k_heads, read_dim(key_of(keys().delta_k_heads)));
  LLM_TRY(const std::size_t v_heads, read_dim(v_heads_key));
  LLM_TRY(const std::size_t k_dim, read_dim(key_of(keys().delta_k_dim)));
  LLM_TRY(const std::size_t v_rows, read_dim(v_rows_key));
  LLM_TRY(const std::size_t width, read_conv_width());
  if (v_heads % k_heads != 0)
    return malformed(v_heads_key, fmt::format("found {}, need a multiple of {} = {}", v_heads,
                                              key_of(keys().delta_k_heads), k_heads));
  if (v_rows % v_heads != 0)
    return malformed(v_rows_key, fmt::format("found {}, need a multiple of {} = {}", v_rows,
                                             v_heads_key, v_heads));
  // Also bounds k_heads, which divides v_heads.
  if (k_dim > kMaxDim / v_heads)
    return malformed(key_of(keys().delta_k_dim), fmt::format("found {}, need at most {} with {} "
                                                             "heads",
                                                             k_dim, kMaxDim / v_heads, v_heads));
  for (std::size_t i = 0; i < config_.n_layers; ++i)
    if (recurrent[i])
      config_.layers[i].mixer =
          DeltaNetSpec{.n_k_heads = k_heads,
                       .n_v_heads = v_heads,
                       .k_dim = k_dim,
                       .v_dim = v_rows / v_heads,
                       .conv_width = width,
                       .grouped = config_.architecture->groups_value_heads || is_mamba,
                       .is_mamba = is_mamba};
  return Ok{};
}

}  // namespace llm
