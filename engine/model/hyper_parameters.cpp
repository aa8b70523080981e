#include "engine/model/hyper_parameters.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ranges>
#include <string_view>
#include <utility>

#include "base/shown_text.h"
#include "engine/model/hyper_parameters_reader.h"
#include "engine/model/missing_architectures.h"
#include "engine/model/rope.h"
#include "engine/model/tensor_name.h"
#include "engine/model/tensor_roles.h"
#include "quant/numerics/contract.h"

namespace llm {

Result<HyperParameters> HyperParametersReader::run() {
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

Status HyperParametersReader::read_architecture() {
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

Status HyperParametersReader::read_layers() {
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
    layer.reads_trunk = !config_.architecture->trunk.empty();
    for (FfnSpec& ffn : layer.ffns) ffn.activation = config_.architecture->activation;
  }
  return Ok{};
}

Status HyperParametersReader::read_windows() {
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

Status HyperParametersReader::read_scales() {
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
    const auto read = [&](std::string_view key, float& scale) -> Status {
      const std::string name = key_of(key);
      const bool is_needed = architecture.needs_scales && key != keys().attention_scale;
      LLM_TRY(const float found, is_needed ? gguf_.get_float(name) : gguf_.get_float_or(name, 0));
      if (found == 0 && !is_needed) return Ok{};
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

Status HyperParametersReader::read_blocks() {
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
  LLM_TRY(std::uint64_t n_mtp, gguf_.get_unsigned_or(mtp_key, 0));
  if (!config_.architecture->trunk.empty()) n_mtp = 0;  // the key counts all of its layers
  if (n_mtp >= declared)
    return malformed(mtp_key,
                     fmt::format("found {}, need less than {} = {}", n_mtp, key, declared));
  config_.n_mtp_layers = static_cast<std::size_t>(n_mtp);
  config_.n_layers = static_cast<std::size_t>(declared - n_mtp);
  // Into these layers go values of images, which texts have none of.
  const std::string deepstack_key = key_of(keys().n_deepstack_layers);
  LLM_TRY(const std::uint64_t n_deepstack, gguf_.get_unsigned_or(deepstack_key, 0));
  if (n_deepstack > config_.n_layers)
    return malformed(deepstack_key, fmt::format("found {}, need at most the number of layers {}",
                                                n_deepstack, config_.n_layers));
  config_.layers.resize(config_.n_layers);
  return Ok{};
}

Result<std::size_t> HyperParametersReader::read_dim(const std::string& key) const {
  LLM_TRY(const PerLayer dims, read_dims(key));
  for (std::size_t i = 1; i < dims.size(); ++i) {
    if (dims[i] == dims[0]) continue;
    return unsupported(key, fmt::format("found {} in layer 0 and {} in layer {}, need one value "
                                        "for all layers",
                                        dims[0], dims[i], i));
  }
  return static_cast<std::size_t>(dims[0]);
}

Result<HyperParametersReader::PerLayer> HyperParametersReader::read_dims(
    const std::string& key) const {
  LLM_TRY(PerLayer dims, read_per_layer(key));
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 || dims[i] > kMaxDim)
      return malformed(key, fmt::format("found {}, need 1 to {}", shown(dims, i), kMaxDim));
  }
  return dims;
}

Status HyperParametersReader::check_count(const std::string& key, const GgufValue& array) const {
  const std::size_t n = config_.n_layers + config_.n_mtp_layers;
  if (array.count == n) return Ok{};
  return malformed(
      key, fmt::format("found an array of n = {}, need one value a layer: {}", array.count, n));
}

Result<HyperParametersReader::PerLayer> HyperParametersReader::read_per_layer(
    const std::string& key) const {
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

std::string HyperParametersReader::shown(const PerLayer& values, std::size_t layer) {
  const bool alike = std::ranges::count(values, values[0]) == std::ssize(values);
  return alike ? fmt::format("{}", values[layer])
               : fmt::format("{} in layer {}", values[layer], layer);
}

Status HyperParametersReader::read_width() {
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

Status HyperParametersReader::read_heads() {
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

Status HyperParametersReader::read_head_dim() {
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
Status HyperParametersReader::read_shared_keys() {
  if (!config_.architecture->trunk.empty()) {  // all layers read the trunk's: join_trunk()
    for (LayerSpec& layer : config_.layers) layer.attention()->kv_of_layer = 0;
    LLM_TRY(config_.d_trunk, read_dim(key_of(keys().d_trunk)));
    return Ok{};
  }
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

Result<std::vector<bool>> HyperParametersReader::read_flags(const std::string& key) const {
  std::vector<bool> out;
  const GgufValue* value = gguf_.find(key);
  if (value == nullptr || value->type != GgufType::kArray) return out;
  if (value->element_type != GgufType::kBool)
    return malformed(key, fmt::format("found {}, need an array of BOOL", value->type_name()));
  LLM_RETURN_IF_ERROR(check_count(key, *value));
  for (std::size_t i = 0; i < config_.n_layers; ++i) out.push_back(value->bytes[i] != std::byte{0});
  return out;
}

Status HyperParametersReader::read_context() {
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

Result<float> HyperParametersReader::read_positive(const std::string& key, float absent) const {
  LLM_TRY(const float value, gguf_.get_float_or(key, absent));
  // Written so that NaN fails.
  if (!(value > 0.0F) || !std::isfinite(value)) {
    return malformed(key, fmt::format("found {}, need a finite number above 0", value));
  }
  return value;
}

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

Result<HyperParameters> read_hyper_parameters(const GgufFile& gguf) {
  return HyperParametersReader(gguf).run();
}

}  // namespace llm
