#include "engine/model/hyper_parameters.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ranges>
#include <string_view>
#include <utility>

#include "base/shown_text.h"
#include "engine/model/missing_architectures.h"
#include "engine/model/rope.h"
#include "engine/model/tensor_name.h"
#include "engine/model/tensor_roles.h"
#include "quant/numerics/contract.h"

namespace llm {
namespace {

// Far above every model; keeps products of two of these far from wrapping.
constexpr std::uint64_t kMaxDim = 1U << 24;
constexpr std::size_t kMaxConvWidth = 16;
// A context that memory cannot hold is the session's error (kResource), not the file's.
constexpr std::uint64_t kMaxContext = UINT32_MAX;

class Reader {
 public:
  explicit Reader(const GgufFile& gguf) : gguf_(gguf) {}

  Result<HyperParameters> run();

 private:
  Status read_architecture();
  Status read_blocks();
  Status read_width();
  Status read_experts();
  Status read_heads();
  Status read_windows();
  Status read_head_dim();
  Status read_shared_keys();
  Status read_delta_nets();
  Status read_short_convs();
  Result<std::size_t> read_conv_width() const;
  Status read_router(FfnSpec& spec) const;
  Result<std::size_t> read_shared_width(std::size_t d_expert) const;
  Result<std::vector<bool>> read_recurrent_layers() const;
  /// A flag of each layer; empty where the key is absent or holds no array.
  Result<std::vector<bool>> read_flags(const std::string& key) const;
  Status read_context();
  Status read_rope();
  Result<std::size_t> read_rope_dims(std::string_view suffix, std::size_t absent,
                                     bool of_windows) const;
  Status read_rope_scaling(RopeSpec& rope) const;
  Status read_yarn(RopeSpec& rope) const;
  Status check_yarn_magnitude(double magnitude) const;
  Status read_query_growth(RopeSpec& rope) const;
  Status check_long_factors() const;
  Status read_layers();
  Status read_scales();

  Error malformed(std::string_view key, std::string message) const {
    return gguf_.value_error(ErrorCode::kMalformed, key, std::move(message));
  }
  Error unsupported(std::string_view key, std::string message) const {
    return gguf_.value_error(ErrorCode::kUnsupported, key, std::move(message));
  }
  /// A value of each layer.
  using PerLayer = std::vector<std::uint64_t>;
  /// An array's values, or n_layers times a count.
  Result<PerLayer> read_per_layer(const std::string& key) const;
  Status check_count(const std::string& key, const GgufValue& array) const;
  /// The same, 1 to kMaxDim.
  Result<PerLayer> read_dims(const std::string& key) const;
  /// The same where all layers have one value.
  Result<std::size_t> read_dim(const std::string& key) const;
  /// The value, and its layer where layers differ.
  static std::string shown(const PerLayer& values, std::size_t layer);
  Result<float> read_positive(const std::string& key, float absent) const;

  std::string key_of(std::string_view suffix) const { return config_.architecture->key(suffix); }
  const HyperParameterKeys& keys() const { return config_.architecture->keys; }

  const GgufFile& gguf_;
  HyperParameters config_;
};

Result<HyperParameters> Reader::run() {
  LLM_RETURN_IF_ERROR(read_architecture());
  LLM_RETURN_IF_ERROR(check_refused_keys(gguf_, *config_.architecture));
  LLM_RETURN_IF_ERROR(read_blocks());
  LLM_RETURN_IF_ERROR(read_width());
  LLM_RETURN_IF_ERROR(read_experts());
  LLM_RETURN_IF_ERROR(read_context());
  LLM_RETURN_IF_ERROR(read_heads());
  LLM_RETURN_IF_ERROR(read_windows());
  LLM_RETURN_IF_ERROR(read_head_dim());
  LLM_RETURN_IF_ERROR(read_shared_keys());
  LLM_RETURN_IF_ERROR(read_delta_nets());
  LLM_RETURN_IF_ERROR(read_short_convs());
  LLM_RETURN_IF_ERROR(read_layers());
  LLM_RETURN_IF_ERROR(read_rope());
  LLM_RETURN_IF_ERROR(read_scales());
  LLM_TRY(config_.pooling_type, gguf_.get_unsigned_or(key_of(keys().pooling), 0));
  return config_;
}

Status Reader::read_architecture() {
  constexpr std::string_view kKey = "general.architecture";
  LLM_TRY(const std::string_view found, gguf_.get_string(kKey));
  const std::string experts_key = fmt::format("{}.{}", found, HyperParameterKeys().n_experts);
  LLM_TRY(const std::uint64_t n_experts, gguf_.get_unsigned_or(experts_key, 0));
  config_.architecture = find_architecture(found, n_experts > 0);
  if (config_.architecture != nullptr) return Ok{};
  std::string known;
  std::string_view last;
  for (const Architecture& architecture : all_architectures())
    if (std::exchange(last, architecture.name) != architecture.name)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", architecture.name);
  const std::string_view needs = needs_of(found);
  return unsupported(kKey, fmt::format("found {}, need one of: {}{}{}", quoted(found), known,
                                       needs.empty() ? "" : "; it would need ", needs));
}

Status Reader::read_layers() {
  const auto has_role = [&](std::string_view name) {
    return std::ranges::count(config_.architecture->roles, name, &RoleNeed::role) > 0;
  };
  const std::string input_key = key_of(keys().layer_input);
  LLM_TRY(const std::uint64_t d_input, gguf_.get_unsigned_or(input_key, 0));
  if (d_input > kMaxDim / config_.n_layers)
    return malformed(input_key, fmt::format("found {}, need at most {} with {} layers", d_input,
                                            kMaxDim / config_.n_layers, config_.n_layers));
  config_.d_inputs = config_.n_layers * static_cast<std::size_t>(d_input);
  for (LayerSpec& layer : config_.layers) {
    layer.has_pre_norms = config_.architecture->has_pre_norms;
    layer.has_post_norms = has_role("post_attention_norm.weight");
    layer.has_output_scale = has_role("layer_output_scale.weight");
    layer.d_input = static_cast<std::size_t>(d_input);
    for (FfnSpec& ffn : layer.ffns) ffn.activation = config_.architecture->activation;
  }
  return Ok{};
}

Status Reader::read_windows() {
  const std::string key = key_of(keys().sliding_window);
  LLM_TRY(const std::uint64_t window, gguf_.get_unsigned_or(key, config_.architecture->window));
  if (window == 0) return Ok{};
  const std::string period_key = key_of(keys().window_period);
  LLM_TRY(const std::vector<bool> windowed, read_flags(period_key));
  std::uint64_t period = config_.architecture->window_period;
  if (windowed.empty()) {
    LLM_TRY(period, gguf_.get_unsigned_or(period_key, period));
  }
  if (window >= config_.context && config_.architecture->window_rope == WindowRope::kSame)
    return Ok{};
  if (config_.architecture->window_period == 0 || period == 0) {
    return unsupported(
        key,
        fmt::format("found {}, need 0 or at least the context {}: attention sees all positions "
                    "in this architecture, not a window",
                    window, config_.context));
  }
  const std::size_t place = config_.architecture->begins_without_window ? 0 : 1;
  for (std::size_t i = 0; i < config_.layers.size(); ++i)
    if (windowed.empty() ? period == 1 || (i + place) % period != 0 : windowed[i])
      config_.layers[i].attention()->window = static_cast<std::size_t>(window);
  return Ok{};
}

Status Reader::read_scales() {
  const Architecture& architecture = *config_.architecture;
  if (architecture.scales_embedding)
    config_.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config_.d_model)));
  const auto read_cap = [this](std::string_view key, float absent, float& cap) -> Status {
    const std::string name = key_of(key);
    LLM_TRY(cap, gguf_.get_float_or(name, absent));
    if (cap == 0) return Ok{};
    LLM_TRY(cap, read_positive(name, absent));
    return Ok{};
  };
  float score_cap = 0;
  LLM_RETURN_IF_ERROR(read_cap(keys().logit_cap, architecture.logit_cap, config_.logit_cap));
  LLM_RETURN_IF_ERROR(read_cap(keys().score_cap, architecture.score_cap, score_cap));
  float attention_scale = architecture.attention_scale;
  // 0 stands for a key that is not there, here and below.
  if (architecture.has_scales) {
    const auto read = [this](std::string_view key, float& scale) -> Status {
      const std::string name = key_of(key);
      LLM_TRY(const float found, gguf_.get_float_or(name, 0));
      if (found == 0) return Ok{};
      LLM_TRY(scale, read_positive(name, found));
      return Ok{};
    };
    LLM_RETURN_IF_ERROR(read(keys().embedding_scale, config_.embedding_scale));
    LLM_RETURN_IF_ERROR(read(keys().attention_scale, attention_scale));
    LLM_RETURN_IF_ERROR(read(keys().residual_scale, config_.residual_scale));
    LLM_RETURN_IF_ERROR(read(keys().logit_scale, config_.logit_divisor));
  }
  for (LayerSpec& layer : config_.layers) {
    if (layer.attention() == nullptr) continue;
    AttentionSpec& spec = *layer.attention();
    spec.score_cap = score_cap;
    double width = static_cast<double>(spec.head_dim);
    if (architecture.width_scaled_n_layers == config_.n_layers)
      width = static_cast<double>(config_.d_model) / static_cast<double>(spec.n_heads);
    spec.scale = attention_scale > 0 ? attention_scale : static_cast<float>(1.0 / std::sqrt(width));
  }
  return Ok{};
}

Status Reader::read_blocks() {
  const std::string key = key_of(keys().n_layers);
  LLM_TRY(const std::uint64_t declared, gguf_.get_unsigned(key));
  std::uint64_t present = 0;  // one more than the largest N of blk.N
  for (const GgufTensor& tensor : gguf_.tensors()) {
    const auto block = layer_of_tensor(tensor.name);
    if (block && *block >= present && *block < UINT64_MAX) present = *block + 1;
  }
  if (declared == 0 || declared != present) {
    return malformed(key,
                     fmt::format("found {}, need {}: the blocks present (blk.N tensors)", declared,
                                 present == 0 ? "at least 1" : std::to_string(present)));
  }
  // Each block has tensors of its own, so a lone blk.4000000000 is caught here.
  if (declared > gguf_.tensors().size()) {
    return malformed(key, fmt::format("found {}, need at most the number of tensors {}", declared,
                                      gguf_.tensors().size()));
  }
  const std::string mtp_key = key_of(keys().n_mtp_layers);
  LLM_TRY(const std::uint64_t n_mtp, gguf_.get_unsigned_or(mtp_key, 0));
  if (n_mtp >= declared)
    return malformed(mtp_key,
                     fmt::format("found {}, need less than {} = {}", n_mtp, key, declared));
  config_.n_mtp_layers = static_cast<std::size_t>(n_mtp);
  config_.n_layers = static_cast<std::size_t>(declared - n_mtp);
  config_.layers.resize(config_.n_layers);
  return Ok{};
}

Result<std::size_t> Reader::read_dim(const std::string& key) const {
  LLM_TRY(const PerLayer dims, read_dims(key));
  for (std::size_t i = 1; i < dims.size(); ++i) {
    if (dims[i] == dims[0]) continue;
    return unsupported(key, fmt::format("found {} in layer 0 and {} in layer {}, need one value "
                                        "for all layers",
                                        dims[0], dims[i], i));
  }
  return static_cast<std::size_t>(dims[0]);
}

Result<Reader::PerLayer> Reader::read_dims(const std::string& key) const {
  LLM_TRY(PerLayer dims, read_per_layer(key));
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 || dims[i] > kMaxDim)
      return malformed(key, fmt::format("found {}, need 1 to {}", shown(dims, i), kMaxDim));
  }
  return dims;
}

Status Reader::check_count(const std::string& key, const GgufValue& array) const {
  const std::size_t n = config_.n_layers + config_.n_mtp_layers;
  if (array.count == n) return Ok{};
  return malformed(
      key, fmt::format("found an array of n = {}, need one value a layer: {}", array.count, n));
}

Result<Reader::PerLayer> Reader::read_per_layer(const std::string& key) const {
  const GgufValue* value = gguf_.find(key);
  if (value == nullptr || value->type != GgufType::kArray) {
    LLM_TRY(const std::uint64_t of_all, gguf_.get_unsigned(key));
    return PerLayer(config_.n_layers, of_all);
  }
  const GgufType element = value->element_type;
  if (element != GgufType::kUint32 && element != GgufType::kInt32) {
    return malformed(key, fmt::format("found {}, need UINT32", value->type_name()));
  }
  LLM_RETURN_IF_ERROR(check_count(key, *value));
  const GgufArray<std::uint32_t> values(value->bytes);
  PerLayer out;
  for (std::size_t i = 0; i < config_.n_layers; ++i) out.push_back(values[i]);
  return out;
}

std::string Reader::shown(const PerLayer& values, std::size_t layer) {
  const bool alike = std::ranges::count(values, values[0]) == std::ssize(values);
  return alike ? fmt::format("{}", values[layer])
               : fmt::format("{} in layer {}", values[layer], layer);
}

Status Reader::read_width() {
  LLM_TRY(config_.d_model, read_dim(key_of(keys().d_model)));
  LLM_TRY(const PerLayer widths, read_dims(key_of(keys().d_ff)));
  for (std::size_t i = 0; i < config_.n_layers; ++i)
    config_.layers[i].ffns = {FfnSpec{.d_ff = static_cast<std::size_t>(widths[i])}};
  LLM_TRY(const GgufTensor* embedding,
          require_tensor(gguf_, *config_.architecture, "token_embd.weight"));
  if (embedding->dims[0] != config_.d_model) {
    return malformed(key_of(keys().d_model),
                     fmt::format("found {}, need {}: the columns of token_embd.weight",
                                 config_.d_model, embedding->dims[0]));
  }
  config_.n_vocab = static_cast<std::size_t>(embedding->dims[1]);
  const std::string key = key_of(keys().n_vocab);
  LLM_TRY(const std::uint64_t declared, gguf_.get_unsigned_or(key, config_.n_vocab));
  LLM_TRY(const GgufStrings tokens, gguf_.get_strings("tokenizer.ggml.tokens"));
  if (declared != config_.n_vocab || tokens.size() != config_.n_vocab) {
    return malformed(tokens.size() == config_.n_vocab ? key : "tokenizer.ggml.tokens",
                     fmt::format("found vocab_size {}, {} tokens and {} rows of token_embd.weight, "
                                 "need all three equal",
                                 declared, tokens.size(), config_.n_vocab));
  }
  return Ok{};
}

Status Reader::read_experts() {
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
Result<std::size_t> Reader::read_shared_width(std::size_t d_expert) const {
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
Status Reader::read_router(FfnSpec& spec) const {
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

Status Reader::read_heads() {
  const std::string key = key_of(keys().n_heads);
  const std::string kv_key = key_of(keys().n_kv_heads);
  LLM_TRY(const PerLayer heads, read_per_layer(key));
  PerLayer kv_heads = heads;
  for (std::size_t i = 0; i < config_.n_layers; ++i) {
    if (heads[i] == 0 || heads[i] > config_.d_model)
      return malformed(key, fmt::format("found {}, need 1 to embedding_length {}", shown(heads, i),
                                        config_.d_model));
  }
  if (gguf_.find(kv_key) != nullptr) {
    LLM_TRY(kv_heads, read_per_layer(kv_key));
  }
  for (std::size_t i = 0; i < config_.n_layers; ++i) {
    if (kv_heads[i] == 0 && config_.architecture->has_short_convs) {
      config_.layers[i].mixer = ShortConvSpec{.d_model = config_.d_model};
      continue;
    }
    if (kv_heads[i] == 0 && config_.architecture->has_mambas) {
      config_.layers[i].mixer = DeltaNetSpec{.is_mamba = true};
      continue;
    }
    if (kv_heads[i] == 0 || kv_heads[i] > heads[i] || heads[i] % kv_heads[i] != 0)
      return malformed(kv_key, fmt::format("found {}, need a divisor of {} = {}",
                                           shown(kv_heads, i), key, heads[i]));
    config_.layers[i].mixer = AttentionSpec{.n_heads = static_cast<std::size_t>(heads[i]),
                                            .n_kv_heads = static_cast<std::size_t>(kv_heads[i])};
  }
  return Ok{};
}

Status Reader::read_head_dim() {
  for (std::size_t i = 0; i < config_.n_layers; ++i) {
    if (config_.layers[i].attention() == nullptr) continue;
    AttentionSpec& spec = *config_.layers[i].attention();
    const bool is_of_windows =
        spec.window > 0 && gguf_.find(key_of(keys().window_head_dim)) != nullptr;
    const std::string key = key_of(is_of_windows ? keys().window_head_dim : keys().head_dim);
    const std::string value_key =
        key_of(is_of_windows ? keys().window_value_dim : keys().value_dim);
    std::size_t given = 0;
    if (gguf_.find(key) != nullptr) {
      LLM_TRY(given, read_dim(key));
    }
    if (given > kMaxDim / spec.n_heads)
      return malformed(key, fmt::format("found {}, need at most {} with {} heads", given,
                                        kMaxDim / spec.n_heads, spec.n_heads));
    if (given == 0 && config_.d_model % spec.n_heads != 0)
      return malformed(key_of(keys().d_model),
                       fmt::format("found {}, need a multiple of {} = {}", config_.d_model,
                                   key_of(keys().n_heads), spec.n_heads));
    spec.norms_rows = config_.architecture->norms_rows;
    spec.rotates_first = config_.architecture->rotates_first;
    spec.value_norm = config_.architecture->has_value_norm;
    spec.v_is_k = config_.architecture->values_may_be_keys &&
                  gguf_.find_tensor(tensor_name("attn_v.weight", static_cast<int>(i))) == nullptr;
    spec.head_dim = given > 0 ? given : config_.d_model / spec.n_heads;
    spec.output_gate = config_.architecture->output_gate;
    if (spec.output_gate == OutputGate::kHeadSoftplus) {
      const GgufTensor* gate =
          gguf_.find_tensor(tensor_name("attn_gate.weight", static_cast<int>(i)));
      if (gate != nullptr && gate->dims[1] == spec.q_rows())
        spec.output_gate = OutputGate::kSoftplus;
    }
    if (spec.head_dim % 2 != 0)
      return unsupported(key,
                         fmt::format("found a head dim of {}, need an even one: RoPE rotates pairs",
                                     spec.head_dim));
    LLM_TRY(const std::uint64_t value_length, gguf_.get_unsigned_or(value_key, spec.head_dim));
    if (value_length != spec.head_dim)
      return unsupported(
          value_key, fmt::format("found {}, need the head dim {}", value_length, spec.head_dim));
  }
  return Ok{};
}

/// The last layers may read the keys and values of the last layer before them all that has equal
/// heads and window.
Status Reader::read_shared_keys() {
  const std::string key = key_of(keys().shared_kv_layers);
  LLM_TRY(const std::uint64_t n_shared, gguf_.get_unsigned_or(key, 0));
  if (n_shared >= config_.n_layers)
    return malformed(key, fmt::format("found {}, need less than {} = {}", n_shared,
                                      key_of(keys().n_layers), config_.n_layers));
  const std::size_t n_own = config_.n_layers - static_cast<std::size_t>(n_shared);
  for (std::size_t i = n_own; i < config_.n_layers; ++i) {
    AttentionSpec& spec = *config_.layers[i].attention();
    std::size_t from = n_own;
    while (from > 0 && config_.layers[from - 1].window() != spec.window) --from;
    if (from == 0 || config_.layers[from - 1].head_dim() != spec.head_dim ||
        config_.layers[from - 1].n_kv_heads() != spec.n_kv_heads)
      return malformed(key, fmt::format("found {}: layer {} has no layer of equal heads and window "
                                        "before the last {}",
                                        n_shared, i, n_shared));
    spec.kv_of_layer = from - 1;
  }
  return Ok{};
}

Result<std::vector<bool>> Reader::read_flags(const std::string& key) const {
  std::vector<bool> out;
  const GgufValue* value = gguf_.find(key);
  if (value == nullptr || value->type != GgufType::kArray) return out;
  if (value->element_type != GgufType::kBool)
    return malformed(key, fmt::format("found {}, need an array of BOOL", value->type_name()));
  LLM_RETURN_IF_ERROR(check_count(key, *value));
  for (std::size_t i = 0; i < config_.n_layers; ++i) out.push_back(value->bytes[i] != std::byte{0});
  return out;
}

Result<std::vector<bool>> Reader::read_recurrent_layers() const {
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

Result<std::size_t> Reader::read_conv_width() const {
  const std::string key = key_of(keys().conv_width);
  LLM_TRY(const std::size_t width, read_dim(key));
  if (width < 2 || width > kMaxConvWidth)
    return unsupported(key, fmt::format("found {}, need 2 to {}", width, kMaxConvWidth));
  return width;
}

Status Reader::read_short_convs() {
  if (!config_.architecture->has_short_convs) return Ok{};
  LLM_TRY(const std::size_t width, read_conv_width());
  for (LayerSpec& layer : config_.layers)
    if (auto* spec = std::get_if<ShortConvSpec>(&layer.mixer)) spec->conv_width = width;
  return Ok{};
}

Status Reader::read_delta_nets() {
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

Status Reader::read_context() {
  const std::string key = key_of(keys().context);
  LLM_TRY(const std::uint64_t context, gguf_.get_unsigned(key));
  if (context == 0 || context > kMaxContext) {
    return malformed(key, fmt::format("found {}, need 1 to {}", context, kMaxContext));
  }
  config_.context = static_cast<std::size_t>(context);
  const std::string eps_key = key_of(keys().norm_eps);
  LLM_TRY(config_.norm_eps, gguf_.get_float(eps_key));
  LLM_TRY(config_.norm_eps, read_positive(eps_key, config_.norm_eps));
  return Ok{};
}

Result<float> Reader::read_positive(const std::string& key, float absent) const {
  LLM_TRY(const float value, gguf_.get_float_or(key, absent));
  // Written so that NaN fails.
  if (!(value > 0.0F) || !std::isfinite(value)) {
    return malformed(key, fmt::format("found {}, need a finite number above 0", value));
  }
  return value;
}

/// The dims that RoPE turns in layers with a window, or in the others.
/// @param absent  if the file does not say; 0: all of a head
Result<std::size_t> Reader::read_rope_dims(std::string_view suffix, std::size_t absent,
                                           bool of_windows) const {
  const bool has_own_rope = config_.architecture->window_rope == WindowRope::kUnscaled;
  std::size_t least = SIZE_MAX;
  for (const LayerSpec& layer : config_.layers)
    if (layer.attention() != nullptr && (!has_own_rope || (layer.window() > 0) == of_windows))
      least = std::min(least, layer.head_dim());
  const bool is_there = least != SIZE_MAX;
  const std::string key = key_of(suffix);
  LLM_TRY(const std::uint64_t dims,
          gguf_.get_unsigned_or(key, absent == 0 && is_there ? least : absent));
  if (!is_there) return static_cast<std::size_t>(std::min<std::uint64_t>(dims, kMaxDim) / 2 * 2);
  if (dims > 0 && dims % 2 == 0 && dims <= least) return static_cast<std::size_t>(dims);
  return malformed(
      key, fmt::format("found {}, need an even number from 2 to the head dim {}", dims, least));
}

Status Reader::read_rope() {
  std::size_t first = 0;  // of the layers with attention
  for (const LayerSpec& layer : config_.layers)
    if (first == 0) first = layer.head_dim();
  if (first == 0)
    return unsupported(
        key_of(config_.architecture->full_attention_period == 0 ? keys().n_kv_heads
                                                                : keys().full_attention_period),
        "found no layer with attention, need one");
  LLM_TRY(const std::size_t dims, read_rope_dims(keys().rope_dims, 0, false));
  RopeSpec rope{.dims = dims};
  LLM_TRY(rope.theta, read_positive(key_of(keys().rope_theta), config_.architecture->rope_theta));
  LLM_RETURN_IF_ERROR(read_rope_scaling(rope));
  LLM_RETURN_IF_ERROR(read_query_growth(rope));
  const Architecture& architecture = *config_.architecture;
  config_.ropes = {rope};
  if (architecture.may_lack_rope) {
    LLM_TRY(const bool has_rope, gguf_.get_bool_or(key_of(keys().has_rope), true));
    if (has_rope) return Ok{};
    rope.dims = 0;
    config_.ropes.push_back(rope);
    for (LayerSpec& layer : config_.layers)
      if (layer.attention() != nullptr) layer.attention()->rope = 1;
    return Ok{};
  }
  const std::size_t period = architecture.no_rope_period;
  const bool has_windows = std::ranges::any_of(
      config_.layers, [](const LayerSpec& layer) { return layer.window() > 0; });
  if (period > 0 || (architecture.window_rope == WindowRope::kAlone && has_windows)) {
    rope.dims = 0;
    config_.ropes.push_back(rope);
    for (std::size_t i = 0; i < config_.layers.size(); ++i)
      if (period > 0 ? (i + 1) % period == 0 : config_.layers[i].window() == 0)
        config_.layers[i].attention()->rope = 1;
  }
  if (architecture.window_rope != WindowRope::kUnscaled) return Ok{};
  const float window_theta =
      architecture.window_rope_theta > 0 ? architecture.window_rope_theta : rope.theta;
  RopeSpec of_windows{.has_divisors = false};
  LLM_TRY(of_windows.dims, read_rope_dims(keys().window_rope_dims, dims, true));
  LLM_TRY(of_windows.theta, read_positive(key_of(keys().window_rope_theta), window_theta));
  config_.ropes.push_back(of_windows);
  for (LayerSpec& layer : config_.layers) layer.attention()->rope = layer.window() > 0 ? 1 : 0;
  return Ok{};
}

Status Reader::read_rope_scaling(RopeSpec& rope) const {
  const Architecture& architecture = *config_.architecture;
  const std::string key = key_of(keys().rope_scaling);
  LLM_TRY(const std::string_view type, gguf_.get_string_or(key, architecture.default_rope_scaling));
  const auto scaling = std::ranges::find(architecture.rope_scalings, type, &RopeScaling::type);
  if (scaling == architecture.rope_scalings.end() || !scaling->refused.empty()) {
    std::string known;
    for (const RopeScaling& row : architecture.rope_scalings)
      if (row.refused.empty()) known += fmt::format("{}{}", known.empty() ? "" : ", ", row.type);
    const bool is_known = scaling != architecture.rope_scalings.end();
    return unsupported(
        key, fmt::format("found {}, need one of: {}{}{}", quoted(type), known, is_known ? "; " : "",
                         is_known ? scaling->refused : std::string_view()));
  }
  // Older files name the linear factor rope.scale_linear.
  LLM_TRY(const float old_factor, read_positive(key_of(keys().old_rope_scale), 1.0F));
  LLM_TRY(const float factor, read_positive(key_of(keys().rope_scale), old_factor));
  rope.scale = scaling->divides_positions ? factor : 1.0F;
  LLM_TRY(const float magnitude, read_positive(key_of(keys().rope_magnitude), 1.0F));
  rope.magnitude = static_cast<double>(magnitude);
  LLM_RETURN_IF_ERROR(check_long_factors());
  const double own_magnitude = rope.magnitude;
  if (scaling->is_yarn) {
    LLM_RETURN_IF_ERROR(read_yarn(rope));
  }
  return check_yarn_magnitude(rope.magnitude / own_magnitude);
}

/// Some files state the magnitude that YaRN has by itself; another one is not computed.
Status Reader::check_yarn_magnitude(double magnitude) const {
  constexpr double kRounding = 1e-5;
  const std::string key = key_of(keys().yarn_magnitude);
  LLM_TRY(const float stated, gguf_.get_float_or(key, 1));
  if (stated == 1.0F || std::abs(static_cast<double>(stated) - magnitude) <= kRounding) return Ok{};
  return unsupported(key, fmt::format("found {}, need 1 or {:.7}: magnitudes follow from the "
                                      "factor here",
                                      stated, magnitude));
}

/// Factors for long texts are read for all: a file whose context they are not for is refused.
Status Reader::check_long_factors() const {
  const std::string name =
      name_in_file(*config_.architecture, *find_role("rope_freqs.weight"), kOutsideLayers);
  if (name == "rope_freqs.weight" || gguf_.find_tensor(name) == nullptr) return Ok{};
  const std::string key = key_of(keys().original_context);
  LLM_TRY(const std::uint64_t original, gguf_.get_unsigned(key));
  if (original < config_.context) return Ok{};
  return unsupported(key, fmt::format("found {}, need less than the context {}: the short factors "
                                      "of RoPE are not used here",
                                      original, config_.context));
}

Status Reader::read_yarn(RopeSpec& rope) const {
  const std::string key = key_of(keys().original_context);
  LLM_TRY(const std::uint64_t original, gguf_.get_unsigned(key));
  if (original == 0 || original > kMaxContext)
    return malformed(key, fmt::format("found {}, need 1 to {}", original, kMaxContext));
  if (rope.theta <= 1.0F)
    return malformed(key_of(keys().rope_theta),
                     fmt::format("found {}, need more than 1 with YaRN", rope.theta));
  const std::string fast_key = key_of(keys().yarn_fast_turns);
  LLM_TRY(const float fast, read_positive(fast_key, 32));
  LLM_TRY(const float slow, read_positive(key_of(keys().yarn_slow_turns), 1));
  if (fast < slow)
    return malformed(fast_key, fmt::format("found {}, need at least {} = {}", fast,
                                           key_of(keys().yarn_slow_turns), slow));
  const std::string log_key = key_of(keys().yarn_log_multiplier);
  LLM_TRY(float log_multiplier, gguf_.get_float_or(log_key, 0));
  if (log_multiplier != 0) {
    LLM_TRY(log_multiplier, read_positive(log_key, 0));
  }
  apply_yarn(rope, {.original_context = static_cast<double>(original),
                    .fast_turns = static_cast<double>(fast),
                    .slow_turns = static_cast<double>(slow),
                    .log_multiplier = static_cast<double>(log_multiplier),
                    .rounds = config_.architecture->yarn_rounds});
  return Ok{};
}

Status Reader::read_query_growth(RopeSpec& rope) const {
  const std::string key = key_of(keys().query_growth);
  LLM_TRY(const float growth, gguf_.get_float_or(key, 0));
  if (growth == 0) return Ok{};
  LLM_TRY(rope.query_growth, read_positive(key, 0));
  const std::string period_key = key_of(keys().original_context);
  LLM_TRY(const std::uint64_t period, gguf_.get_unsigned(period_key));
  if (period == 0 || period > kMaxContext)
    return malformed(period_key, fmt::format("found {}, need 1 to {}", period, kMaxContext));
  rope.query_period = static_cast<std::size_t>(period);
  return Ok{};
}

}  // namespace

HyperParameters HyperParameters::mtp() const {
  HyperParameters config = *this;
  const auto like = std::ranges::find_if(layers | std::views::reverse, [](const LayerSpec& layer) {
    return layer.attention() != nullptr;
  });
  config.layers = {*like};
  config.layers[0].reads_next_token = true;
  config.layers[0].attention()->kv_of_layer.reset();
  config.layers[0].d_input = config.d_inputs = 0;
  config.n_layers = 1;
  config.n_mtp_layers = 0;
  config.first_block = n_layers;
  return config;
}

HyperParameters HyperParameters::only(std::size_t layer) const {
  HyperParameters one = *this;
  one.n_layers = 1;
  one.layers = {layers[layer]};
  if (AttentionSpec* spec = one.layers[0].attention()) spec->kv_of_layer.reset();
  return one;
}

InputFactors input_factors(const HyperParameters& config) {
  const auto root = [](std::size_t n) { return std::sqrt(static_cast<double>(n)); };
  return {.embedding = static_cast<float>(root(config.d_input())),
          .projection = static_cast<float>(1 / root(config.d_model)),
          .sum = static_cast<float>(1 / root(2))};
}

Result<HyperParameters> read_hyper_parameters(const GgufFile& gguf) { return Reader(gguf).run(); }

}  // namespace llm
