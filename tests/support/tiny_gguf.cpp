#include "tests/support/tiny_gguf.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>

#include "engine/model/tensor_name.h"
#include "engine/model/tensor_roles.h"
#include "quant/formats/block_visit.h"
#include "quant/formats/codes.h"
#include "quant/formats/half.h"
#include "tests/support/catch.h"

namespace llm::test {
namespace {

constexpr std::size_t kModelDim = 32;
constexpr std::size_t kFeedForward = 256;  // one Q4_K block
constexpr std::size_t kHeads = 4;
constexpr std::size_t kKvHeads = 2;
constexpr std::size_t kHeadDim = kModelDim / kHeads;
constexpr std::size_t kWideHeadDim = 24;  // of qwen3
constexpr std::size_t kFullAttentionPeriod = 2;
constexpr DeltaNetSpec kDeltaNet = {
    .n_k_heads = 2, .n_v_heads = 4, .k_dim = 20, .v_dim = 8, .conv_width = 4};
constexpr DeltaNetSpec kMamba = {.n_k_heads = 2,
                                 .n_v_heads = 4,
                                 .k_dim = 20,
                                 .v_dim = 16,
                                 .conv_width = 4,
                                 .grouped = true,
                                 .is_mamba = true};
constexpr std::size_t kConvWidth = 3;  // of lfm2
constexpr std::size_t kExperts = 5;
constexpr std::size_t kExpertsUsed = 2;
constexpr std::size_t kSharedFeedForward = 96;
// Of gemma4: every other layer has a window, the last two have no keys and values of their own, and
// each has inputs.
constexpr std::size_t kSharingLayers = 4;
constexpr std::size_t kSharedKv = 2;
constexpr std::size_t kWindow = 5;
constexpr std::size_t kWindowHeadDim = 12;
constexpr std::size_t kLayerInput = 6;

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return alignment == 0 ? value : (value + alignment - 1) / alignment * alignment;
}

std::vector<std::uint64_t> layout(const TinyGguf& model) {
  std::vector<std::uint64_t> offsets;
  std::uint64_t next = 0;
  for (const TinyGguf::Tensor& tensor : model.tensors) {
    offsets.push_back(next);
    next = align_up(next + tensor.data.size(), model.alignment);
  }
  return offsets;
}

std::string header(const TinyGguf& model) {
  std::string out = model.magic + encoded(model.version) +
                    encoded(model.n_tensors.value_or(model.tensors.size())) +
                    encoded(model.n_entries.value_or(model.entries.size()));
  for (const TinyGguf::Entry& entry : model.entries) {
    out += encoded(entry.key_length.value_or(entry.key.size())) + entry.key + encoded(entry.type) +
           entry.value;
  }
  const auto offsets = layout(model);
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    const TinyGguf::Tensor& tensor = model.tensors[i];
    out += encoded(tensor.name_length.value_or(tensor.name.size())) + tensor.name +
           encoded(tensor.n_dims.value_or(static_cast<std::uint32_t>(tensor.dims.size())));
    for (const std::uint64_t dim : tensor.dims) out += encoded(dim);
    out += encoded(tensor.type) + encoded(tensor.offset.value_or(offsets[i]));
  }
  out.resize(align_up(out.size(), model.alignment));
  return out;
}

/// Raw engine output only: the library's distributions differ between implementations.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  float uniform(float amplitude) {
    const auto unit = static_cast<float>(engine_() >> 40) * 0x1p-23F - 1.0F;
    return amplitude * unit;
  }
  char byte() { return static_cast<char>(engine_() >> 56); }

 private:
  std::mt19937_64 engine_;
};

std::string random_bytes(std::size_t n, Random& random) {
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += random.byte();
  return out;
}

std::string encoded_half(float value) { return encoded(f32_to_f16(value)); }

/// Of types that no quantizer makes: any codes and scales, with such a d that few are larger.
template <class Block>
std::string random_read_only(float amplitude, Random& random) {
  const std::string bytes = random_bytes(sizeof(Block), random);
  Block block;
  std::memcpy(&block, bytes.data(), sizeof(block));
  if constexpr (Block::kType == WeightType::kNVFP4) {
    const int exponent = std::max(1, std::ilogb(amplitude) + 6);
    for (std::uint8_t& scale : block.scales)
      scale = static_cast<std::uint8_t>(8 * exponent + scale % 8);
  } else if constexpr (HasCodebook<Block>) {
    const auto code = static_cast<float>(*std::ranges::max_element(Block::kBookValues));
    const std::uint16_t d = f32_to_f16(amplitude * 4 / (15 * code));
    if constexpr (Block::kType == WeightType::kIQ1_M) {
      contract::set_iq1_m_scale_bits(block, d);
    } else {
      block.d = d;
    }
  } else if constexpr (Block::kType == WeightType::kTQ1_0 || Block::kType == WeightType::kTQ2_0) {
    block.d = f32_to_f16(amplitude / 2);
  } else {
    FAIL("no random weights of this type");
  }
  return encoded(block);
}

std::string random_block(WeightType type, float amplitude, Random& random) {
  switch (type) {
    case WeightType::kF32:
      return encoded(random.uniform(amplitude));
    case WeightType::kF16:
      return encoded_half(random.uniform(amplitude));
    case WeightType::kQ8_0:
      return encoded_half(amplitude / 128) + random_bytes(32, random);
    case WeightType::kQ4_0:
      return encoded_half(amplitude / 8) + random_bytes(16, random);
    case WeightType::kQ4_K: {
      // weight = d * sc * q - dmin * m with sc, m <= 63 and q <= 15: means cancel at dmin = 7.5 d.
      const float d = amplitude / (63 * 15);
      return encoded_half(d) + encoded_half(7.5F * d) + random_bytes(12 + 128, random);
    }
    default:
      return visit_block_format(
          type, [&]<class Block>() { return random_read_only<Block>(amplitude, random); });
  }
}

/// Where an architecture has both kinds of layers, every other has attention.
bool has_recurrent_layers(const Architecture& architecture) {
  return architecture.full_attention_period > 0 || architecture.has_short_convs ||
         architecture.has_mambas;
}
bool is_recurrent(const Architecture& architecture, std::size_t layer) {
  return has_recurrent_layers(architecture) && layer % kFullAttentionPeriod == 0;
}

HyperParameters hyper_parameters(const TinyOptions& options) {
  HyperParameters config;
  config.architecture = find_architecture(options.architecture);
  REQUIRE(config.architecture != nullptr);
  config.n_layers = options.n_layers;
  if (has_recurrent_layers(*config.architecture))
    config.n_layers = std::max(config.n_layers, kFullAttentionPeriod);
  if (config.architecture->has_dense_layers)
    config.n_layers = std::max<std::size_t>(config.n_layers, 2);
  config.d_model = kModelDim;
  const std::size_t head_dim = options.architecture == "qwen3" ? kWideHeadDim : kHeadDim;
  FfnSpec ffn{.d_ff = kFeedForward};
  if (config.architecture->has_experts) {
    ffn.n_experts = kExperts;
    ffn.n_used = kExpertsUsed;
    ffn.weighs_shared = config.architecture->weighs_shared;
  }
  config.ropes = {RopeSpec{.dims = head_dim}};
  const bool shares_keys = config.architecture->values_may_be_keys;
  if (shares_keys) config.n_layers = std::max(config.n_layers, kSharingLayers);
  for (std::size_t i = 0; i < config.n_layers; ++i) {
    // Of unlike layers every other is smaller.
    const std::size_t part = options.unlike_layers && i % 2 == 1 ? 2 : 1;
    AttentionSpec attention{
        .n_heads = kHeads / part, .n_kv_heads = kKvHeads / part, .head_dim = head_dim};
    ffn.d_ff = kFeedForward / part;
    if (config.architecture->has_shared_expert)
      ffn.d_shared = config.architecture->counts_shared ? ffn.d_ff : kSharedFeedForward;
    attention.output_gate = config.architecture->output_gate;
    attention.norms_rows = config.architecture->norms_rows;
    attention.rotates_first = config.architecture->rotates_first;
    config.layers.push_back(
        {.mixer = attention, .ffns = {ffn}, .has_pre_norms = config.architecture->has_pre_norms});
    if (is_recurrent(*config.architecture, i)) config.layers.back().mixer = kDeltaNet;
    if (is_recurrent(*config.architecture, i) && config.architecture->has_mambas)
      config.layers.back().mixer = kMamba;
    if (is_recurrent(*config.architecture, i) && config.architecture->has_short_convs)
      config.layers.back().mixer = ShortConvSpec{kModelDim, kConvWidth};
    if (i == 0 && config.architecture->has_dense_layers)
      config.layers.back().ffns = {FfnSpec{.d_ff = kFeedForward}};
    if (!shares_keys) continue;
    LayerSpec& layer = config.layers.back();
    AttentionSpec& spec = *layer.attention();
    if (i % 2 == 0) spec.window = kWindow, spec.head_dim = kWindowHeadDim, spec.rope = 1;
    spec.value_norm = true;
    spec.v_is_k = i % 2 == 1;
    if (i + kSharedKv >= config.n_layers) spec.kv_of_layer = i - kSharedKv;
    layer.has_output_scale = true;
    layer.d_input = kLayerInput;
  }
  if (!shares_keys) return config;
  config.ropes.push_back({.dims = kWindowHeadDim, .has_divisors = false});
  config.d_inputs = config.n_layers * kLayerInput;
  config.n_vocab = TinyGguf::pieces().size();
  return config;
}

/// Of every kind that a matrix may have, some.
WeightType type_of(const TensorRole& role) {
  if (!role.is_matrix() || role.name == "attn_k.weight" || role.name.starts_with("ffn_gate_inp"))
    return WeightType::kF32;
  if (role.name == "attn_q.weight") return WeightType::kF16;
  if (role.name == "attn_v.weight") return WeightType::kQ8_0;
  return role.name == "ffn_down.weight" ? WeightType::kQ4_K : WeightType::kQ4_0;
}

/// Weights of a norm near 1, or biases and sinks.
std::string vector_values(std::string_view name, std::size_t n, std::uint64_t seed) {
  Random random(seed);
  const bool is_norm = name.find("norm") != std::string_view::npos;
  const bool divides = name == "rope_freqs.weight";
  const float mean = is_norm ? 1.0F : divides ? 2.0F : name.ends_with("ssm_a") ? -1.1F : 0.0F;
  const float amplitude = is_norm ? 0.1F : 1.0F;
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += encoded(mean + random.uniform(amplitude));
  return out;
}

}  // namespace

std::string encoded_string(std::string_view text) {
  return encoded(static_cast<std::uint64_t>(text.size())) + std::string(text);
}

std::string encoded_string_array(const std::vector<std::string>& values) {
  std::string out = encoded(static_cast<std::uint32_t>(GgufType::kString)) +
                    encoded(static_cast<std::uint64_t>(values.size()));
  for (const std::string& value : values) out += encoded_string(value);
  return out;
}

std::string random_weights(WeightType type, std::size_t n_rows, std::size_t n_cols, float amplitude,
                           std::uint64_t seed) {
  Random random(seed);
  const std::size_t n_blocks = n_rows * n_cols / block_traits(type).block_weights;
  std::string out;
  for (std::size_t i = 0; i < n_blocks; ++i) out += random_block(type, amplitude, random);
  return out;
}

std::vector<std::string> TinyGguf::pieces() {
  std::vector<std::string> all = {"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) all.push_back(fmt::format("<0x{:02X}>", byte));
  for (const char* piece : {"\u2581t", "he", "\u2581the", "an", "\u2581a", "\u2581", "e", "t", "a",
                            "o", "n", "h", "s"}) {
    all.emplace_back(piece);
  }
  return all;
}

std::vector<float> TinyGguf::scores() {
  std::vector<float> all(pieces().size(), 0.0F);
  for (std::size_t id = 259; id < all.size(); ++id) all[id] = 258.0F - static_cast<float>(id);
  return all;
}

std::vector<std::int32_t> TinyGguf::kinds() {
  std::vector<std::int32_t> all(pieces().size(), 1);
  all[0] = 2;
  all[1] = all[2] = 3;
  std::fill(all.begin() + 3, all.begin() + 259, 6);
  return all;
}

std::vector<std::string> TinyGguf::architectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : all_architectures())
    // Not also the row with experts, and only what runs alone.
    if (architecture.trunk.empty() && (names.empty() || names.back() != architecture.name))
      names.emplace_back(architecture.name);
  return names;
}

TinyGguf TinyGguf::llama(const TinyOptions& options) {
  TinyGguf model;
  const auto key = [&](std::string_view suffix) {
    return (options.architecture + ".").append(suffix);
  };
  const HyperParameters config = hyper_parameters(options);
  const auto head_dim = static_cast<std::uint32_t>(config.ropes.front().dims);
  model.set_string("general.architecture", options.architecture);
  model.set_string("general.name", "tiny");
  model.set_u32(key("block_count"), static_cast<std::uint32_t>(config.n_layers));
  model.set_u32(key("context_length"), 64);
  model.set_u32(key("embedding_length"), kModelDim);
  model.set_u32(key(config.architecture->keys.d_ff), kFeedForward);
  if (config.architecture->has_experts) {
    model.set_u32(key(config.architecture->keys.n_experts), kExperts);
    model.set_u32(key(config.architecture->keys.n_experts_used), kExpertsUsed);
    if (config.architecture->counts_shared) {
      model.set_u32(key(config.architecture->keys.n_shared_experts), 1);
    } else if (config.architecture->has_shared_expert) {
      model.set_u32(key(config.architecture->keys.d_shared), kSharedFeedForward);
    }
  }
  if (config.architecture->has_dense_layers) {
    model.set_u32(key(config.architecture->keys.d_expert), kFeedForward);
    model.set_u32(key(config.architecture->keys.n_dense_layers), 1);
  }
  if (config.architecture->has_scales) {
    model.set_f32(key(config.architecture->keys.embedding_scale), 3.0F);
    model.set_f32(key(config.architecture->keys.attention_scale), 0.2F);
    model.set_f32(key(config.architecture->keys.residual_scale), 0.7F);
    model.set_f32(key(config.architecture->keys.logit_scale), 1.3F);
  }
  if (config.d_inputs > 0) {
    const HyperParameterKeys& keys = config.architecture->keys;
    std::vector<std::uint8_t> windowed;
    for (const LayerSpec& layer : config.layers) windowed.push_back(layer.window() > 0 ? 1 : 0);
    model.set_u32(key(keys.sliding_window), kWindow);
    model.set_array(key(keys.window_period), GgufType::kBool, windowed);
    model.set_u32(key(keys.window_head_dim), kWindowHeadDim);
    model.set_u32(key(keys.window_value_dim), kWindowHeadDim);
    model.set_u32(key(keys.window_rope_dims), kWindowHeadDim);
    model.set_u32(key(keys.shared_kv_layers), kSharedKv);
    model.set_u32(key(keys.layer_input), kLayerInput);
    model.set_f32(key(keys.logit_cap), 4.0F);
  }
  if (!config.architecture->has_pre_norms)
    model.set_u32(key(config.architecture->keys.sliding_window), 5);
  if (options.architecture == "gemma2") {
    model.set_u32(key(config.architecture->keys.sliding_window), 5);
    model.set_f32(key(config.architecture->keys.score_cap), 2.0F);
    model.set_f32(key(config.architecture->keys.logit_cap), 4.0F);
  }
  if (options.architecture == "mistral3") {
    const HyperParameterKeys& keys = config.architecture->keys;
    model.set_string(key(keys.rope_scaling), "yarn");
    model.set_f32(key(keys.rope_scale), 4.0F);
    model.set_u32(key(keys.original_context), 4);
    model.set_f32(key(keys.yarn_log_multiplier), 1.0F);
    model.set_f32(key(keys.query_growth), 0.3F);
  }
  if (options.architecture == "gpt-oss") {
    model.set_u32(key(config.architecture->keys.sliding_window), 5);
    model.set_string(key(config.architecture->keys.rope_scaling), "yarn");
    model.set_f32(key(config.architecture->keys.rope_scale), 4.0F);
    model.set_u32(key(config.architecture->keys.original_context), 16);
  }
  if (const DeltaNetSpec* const spec = config.layers[0].delta_net()) {
    const HyperParameterKeys& keys = config.architecture->keys;
    if (!spec->is_mamba) model.set_u32(key(keys.full_attention_period), kFullAttentionPeriod);
    model.set_u32(key(keys.conv_width), static_cast<std::uint32_t>(spec->conv_width));
    model.set_u32(key(keys.delta_k_dim), static_cast<std::uint32_t>(spec->k_dim));
    model.set_u32(key(keys.delta_k_heads), static_cast<std::uint32_t>(spec->n_k_heads));
    model.set_u32(key(keys.delta_v_heads), static_cast<std::uint32_t>(spec->n_v_heads));
    model.set_u32(key(keys.delta_v_rows), static_cast<std::uint32_t>(spec->v_rows()));
  }
  if (options.architecture == "phi3")
    model.set_f32(key(config.architecture->keys.rope_magnitude), 1.2F);
  model.set_u32(key("attention.head_count"), kHeads);
  model.set_u32(key("attention.head_count_kv"), kKvHeads);
  if (config.architecture->has_short_convs || config.architecture->has_mambas) {
    std::vector<std::uint32_t> kv_heads;
    for (const LayerSpec& layer : config.layers)
      kv_heads.push_back(static_cast<std::uint32_t>(layer.n_kv_heads()));
    model.set_array(key("attention.head_count_kv"), GgufType::kUint32, kv_heads);
  }
  if (config.architecture->has_short_convs)
    model.set_u32(key(config.architecture->keys.conv_width), kConvWidth);
  if (options.unlike_layers) {
    std::vector<std::uint32_t> heads;
    std::vector<std::uint32_t> kv_heads;
    std::vector<std::uint32_t> widths;
    for (const LayerSpec& layer : config.layers) {
      heads.push_back(static_cast<std::uint32_t>(layer.n_heads()));
      kv_heads.push_back(static_cast<std::uint32_t>(layer.n_kv_heads()));
      widths.push_back(static_cast<std::uint32_t>(layer.d_ff()));
    }
    model.set_array(key("attention.head_count"), GgufType::kUint32, heads);
    model.set_array(key("attention.head_count_kv"), GgufType::kUint32, kv_heads);
    model.set_array(key(config.architecture->keys.d_ff), GgufType::kUint32, widths);
  }
  model.set_f32(key("attention.layer_norm_rms_epsilon"), 1e-5F);
  model.set_u32(key("rope.dimension_count"), head_dim);
  model.set_f32(key("rope.freq_base"), 10000.0F);
  model.set_u32(key("vocab_size"), static_cast<std::uint32_t>(pieces().size()));
  if (head_dim != kHeadDim || options.unlike_layers) {
    model.set_u32(key("attention.key_length"), head_dim);
    model.set_u32(key("attention.value_length"), head_dim);
  }
  model.set_string("tokenizer.ggml.model", "llama");
  model.set_strings("tokenizer.ggml.tokens", pieces());
  model.set_array("tokenizer.ggml.scores", GgufType::kFloat32, scores());
  model.set_array("tokenizer.ggml.token_type", GgufType::kInt32, kinds());
  model.set_u32("tokenizer.ggml.bos_token_id", 1);
  model.set_u32("tokenizer.ggml.eos_token_id", 2);
  model.set_u32("tokenizer.ggml.unknown_token_id", 0);
  model.set<std::uint8_t>("tokenizer.ggml.add_bos_token", GgufType::kBool, 1);

  std::uint64_t seed = options.seed * 1000;
  const auto add = [&](const std::string& name, WeightType type,
                       const std::vector<std::uint64_t>& dims, bool is_matrix) {
    const auto n_cols = static_cast<std::size_t>(dims[0]);
    const std::size_t n_rows =
        std::accumulate(dims.begin() + 1, dims.end(), std::size_t{1}, std::multiplies<>());
    // Uniform weights of this amplitude keep the variance of what passes through.
    const float amplitude = std::sqrt(3.0F / static_cast<float>(n_cols));
    model.tensors.push_back({.name = name,
                             .dims = dims,
                             .type = static_cast<std::uint32_t>(type),
                             .data = is_matrix
                                         ? random_weights(type, n_rows, n_cols, amplitude, ++seed)
                                         : vector_values(name, n_rows * n_cols, ++seed)});
  };
  add("token_embd.weight", WeightType::kQ8_0, {kModelDim, pieces().size()}, true);
  add(name_in_file(config, *find_role("output_norm.weight"), kOutsideLayers), WeightType::kF32,
      {kModelDim}, false);
  if (!options.tied_output)
    add("output.weight", WeightType::kQ4_0, {kModelDim, pieces().size()}, true);
  const auto add_layer = [&](const HyperParameters& of, int at) {
    for (const TensorRole& role : kTensorRoles) {
      if (role.per_layer != (at != kOutsideLayers)) continue;
      const Need need = need_of(of, role, at);
      if (need == Need::kAbsent) continue;
      if (need == Need::kOptional && !role.name.ends_with(".bias") &&
          !role.name.ends_with("_norm.weight"))
        continue;
      if (std::ranges::count(model.tensors, name_in_file(of, role, at), &Tensor::name) > 0)
        continue;  // those above, and of one tensor that several roles read
      const RowsInTensor rows = rows_in_tensor(of, role, at);
      if (rows.first > 0) continue;
      std::vector<std::uint64_t> dims = {role.cols.of(of, at)};
      if (role.is_matrix()) dims.push_back(rows.all);
      if (role.stack.of(of, at) > 1) dims.push_back(role.stack.of(of, at));
      const bool is_whole = dims[0] % block_traits(type_of(role)).block_weights == 0;
      add(name_in_file(of, role, at), is_whole ? type_of(role) : WeightType::kF32, dims,
          role.is_matrix());
    }
  };
  add_layer(config, kOutsideLayers);
  for (std::size_t layer = 0; layer < config.n_layers; ++layer)
    add_layer(config, static_cast<int>(layer));
  if (!options.mtp) return model;
  model.set_u32(key("block_count"), static_cast<std::uint32_t>(config.n_layers + 1));
  model.set_u32(key("nextn_predict_layers"), 1);
  add_layer(config.mtp(), 0);
  return model;
}

TinyGguf TinyGguf::read_only_types() {
  constexpr WeightType kTypes[] = {WeightType::kIQ1_S,   WeightType::kIQ1_M, WeightType::kIQ2_XXS,
                                   WeightType::kIQ2_XS,  WeightType::kIQ2_S, WeightType::kTQ1_0,
                                   WeightType::kIQ3_XXS, WeightType::kIQ3_S, WeightType::kTQ2_0,
                                   WeightType::kNVFP4};
  TinyGguf model = llama({.n_layers = std::size(kTypes)});
  for (std::size_t layer = 0; layer < std::size(kTypes); ++layer) {
    Tensor& down = model.tensor(fmt::format("blk.{}.ffn_down.weight", layer));
    down.type = static_cast<std::uint32_t>(kTypes[layer]);
    const float amplitude = std::sqrt(3.0F / static_cast<float>(down.dims[0]));
    down.data = random_weights(kTypes[layer], down.dims[1], down.dims[0], amplitude, layer + 1);
  }
  return model;
}

void TinyGguf::set_string(std::string_view key, std::string_view value) {
  set_encoded(key, static_cast<std::uint32_t>(GgufType::kString), encoded_string(value));
}

void TinyGguf::set_strings(std::string_view key, const std::vector<std::string>& values) {
  set_encoded(key, static_cast<std::uint32_t>(GgufType::kArray), encoded_string_array(values));
}

void TinyGguf::set_pieces(const std::map<std::size_t, std::string>& changed, std::int32_t kind) {
  auto all = pieces();
  auto all_kinds = kinds();
  for (const auto& [id, piece] : changed) {
    all.at(id) = piece;
    all_kinds.at(id) = kind;
  }
  set_strings("tokenizer.ggml.tokens", all);
  set_array("tokenizer.ggml.token_type", GgufType::kInt32, all_kinds);
}

void TinyGguf::set_encoded(std::string_view key, std::uint32_t type, std::string value) {
  auto entry = std::ranges::find(entries, key, &Entry::key);
  if (entry == entries.end())
    entry = entries.insert(entry, {.key = std::string(key), .type = type, .value = {}});
  entry->type = type;
  entry->value = std::move(value);
}

void TinyGguf::remove(std::string_view key) {
  std::erase_if(entries, [&](const Entry& e) { return e.key == key; });
}

void TinyGguf::remove_tensor(std::string_view name) {
  std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
}

TinyGguf::Entry& TinyGguf::entry(std::string_view key) {
  const auto it = std::ranges::find(entries, key, &Entry::key);
  REQUIRE(it != entries.end());
  return *it;
}

TinyGguf::Tensor& TinyGguf::tensor(std::string_view name) {
  const auto it = std::ranges::find(tensors, name, &Tensor::name);
  REQUIRE(it != tensors.end());
  return *it;
}

std::vector<std::string> TinyGguf::byte_bpe_tokens() {
  // GPT-2's alphabet: what is printable in Latin-1, then U+0100 and up for the others.
  std::vector<std::string> tokens;
  const auto add = [&tokens](unsigned code) {
    std::string text(1, static_cast<char>(code));
    if (code >= 0x80)
      text = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    tokens.push_back(text);
  };
  for (unsigned code = 0x21; code < 0x144; ++code) {
    const bool gap = (code > 0x7E && code < 0xA1) || code == 0xAD;
    if (!gap) add(code);
  }
  tokens.insert(tokens.end(), {"ab", "cd"});
  while (tokens.size() < 272) tokens.push_back("word" + std::to_string(tokens.size()));
  return tokens;
}

void TinyGguf::make_byte_bpe() {
  set_string("tokenizer.ggml.model", "gpt2");
  set_string("tokenizer.ggml.pre", "gpt-2");
  set_strings("tokenizer.ggml.tokens", byte_bpe_tokens());
  std::vector<std::int32_t> kinds(272, 1);
  kinds[257] = 3;
  set_array("tokenizer.ggml.token_type", GgufType::kInt32, kinds);
  set_strings("tokenizer.ggml.merges", {"a b"});
  for (const char* key : {"scores", "bos_token_id", "eos_token_id", "unknown_token_id"})
    remove(std::string("tokenizer.ggml.") + key);
}

std::vector<std::byte> TinyGguf::bytes() const {
  std::string out = header(*this);
  const std::size_t data_begin = out.size();
  const auto offsets = layout(*this);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    out.resize(data_begin + offsets[i]);
    out += tensors[i].data;
  }
  if (final_padding) out.resize(data_begin + align_up(out.size() - data_begin, alignment));
  out += trailing;
  const auto span = std::as_bytes(std::span(out.data(), out.size()));
  return {span.begin(), span.end()};
}

std::size_t TinyGguf::header_bytes() const { return header(*this).size(); }

std::uint64_t TinyGguf::default_offset(std::string_view name) const {
  const auto it = std::ranges::find(tensors, name, &Tensor::name);
  REQUIRE(it != tensors.end());
  return layout(*this)[static_cast<std::size_t>(it - tensors.begin())];
}

}  // namespace llm::test
