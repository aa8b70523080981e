#include "tools/llmsynth/synthetic_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>
#include <vector>

#include "base/thread_team.h"
#include "engine/model/tensor_name.h"
#include "engine/model/tensor_roles.h"
#include "quant/formats/quantize/quantize_row.h"
#include "quant/numerics/f64_functions.h"

namespace llm {
namespace {

constexpr SyntheticFamily kLlama3 = {
    .pre_tokenizer = "llama-bpe", .rope_theta = 500000.0F, .llama3 = {.factor = 32}};
constexpr SyntheticFamily kQwen2 = {
    .architecture = "qwen2", .pre_tokenizer = "qwen2", .rope_theta = 1000000.0F, .norm_eps = 1e-6F};
constexpr SyntheticFamily kQwen3 = {
    .architecture = "qwen3", .pre_tokenizer = "qwen2", .rope_theta = 1000000.0F, .norm_eps = 1e-6F};
constexpr SyntheticFamily kGemma3 = {
    .architecture = "gemma3", .rope_theta = 1000000.0F, .norm_eps = 1e-6F, .window = 512};
constexpr SyntheticFamily kGemma3Small = {
    .architecture = "gemma3", .rope_theta = 1000000.0F, .norm_eps = 1e-6F, .window = 24};
constexpr SyntheticFamily kGemma4Small = {.architecture = "gemma4",
                                          .rope_theta = 1000000.0F,
                                          .norm_eps = 1e-6F,
                                          .window = 24,
                                          .window_head_dim = 32,
                                          .n_shared = 3,
                                          .d_input = 32};
constexpr SyntheticFamily kGemma4MoeSmall = {.architecture = "gemma4",
                                             .rope_theta = 1000000.0F,
                                             .norm_eps = 1e-6F,
                                             .window = 24,
                                             .n_experts = 10,
                                             .n_experts_used = 6,
                                             .d_shared = 160,
                                             .window_head_dim = 32};
// config.json of google/gemma-4-E2B-it.
constexpr SyntheticFamily kGemma4E2b = {.architecture = "gemma4",
                                        .rope_theta = 1000000.0F,
                                        .norm_eps = 1e-6F,
                                        .window = 512,
                                        .window_head_dim = 256,
                                        .full_period = 5,
                                        .has_values = true,
                                        .n_shared = 20,
                                        .shared_are_wide = true,
                                        .d_input = 256};
constexpr SyntheticFamily kPhi3 = {.architecture = "phi3", .window = 2047};
constexpr SyntheticFamily kPhi3Small = {.architecture = "phi3", .window = 24};

constexpr SyntheticFamily qwen3moe(std::uint32_t n_experts, std::uint32_t n_used) {
  return {.architecture = "qwen3moe",
          .pre_tokenizer = "qwen2",
          .rope_theta = 1000000.0F,
          .norm_eps = 1e-6F,
          .n_experts = n_experts,
          .n_experts_used = n_used};
}
constexpr SyntheticFamily qwen35(DeltaNetSpec delta, SyntheticFamily experts = {}) {
  experts.architecture = experts.n_experts > 0 ? "qwen35moe" : "qwen35";
  experts.pre_tokenizer = "qwen35";
  experts.rope_theta = 10000000.0F;
  experts.norm_eps = 1e-6F;
  experts.delta = delta;
  experts.head_of_rope = 4;
  return experts;
}
constexpr SyntheticFamily lfm2(SyntheticFamily experts = {}) {
  experts.architecture = experts.n_experts > 0 ? "lfm2moe" : "lfm2";
  experts.pre_tokenizer = "lfm2";
  experts.rope_theta = 1000000.0F;
  experts.conv_width = 3;
  return experts;
}
constexpr std::size_t kLfm2Period = 3;
constexpr SyntheticFamily granite_hybrid(DeltaNetSpec mamba, SyntheticFamily experts = {}) {
  mamba.grouped = mamba.is_mamba = true;
  experts.architecture = "granitehybrid";
  experts.pre_tokenizer = "smollm";
  experts.delta = mamba;
  return experts;
}
constexpr SyntheticFamily laguna(SyntheticFamily experts) {
  experts.architecture = "laguna";
  experts.pre_tokenizer = "laguna";
  experts.head_of_rope = 2;
  return experts;
}
constexpr SyntheticFamily with_mtp(SyntheticFamily family) {
  family.mtp = true;
  return family;
}
constexpr SyntheticFamily gpt_oss(std::uint32_t n_experts, std::uint32_t n_used,
                                  std::uint32_t window) {
  return {.architecture = "gpt-oss",
          .pre_tokenizer = "gpt-4o",
          .rope_theta = 150000.0F,
          .yarn = {.factor = 32, .original_context = 4096},
          .window = window,
          .n_experts = n_experts,
          .n_experts_used = n_used};
}

constexpr std::array kShapes = {
    SyntheticShape{"tinyllama", 2048, 5632, 22, 32, 4, 64, 32000, 2048, false},
    SyntheticShape{"tinyllama-2l", 2048, 5632, 2, 32, 4, 64, 32000, 2048, false},
    SyntheticShape{"odd80", 320, 864, 2, 4, 2, 80, 403, 512, false},
    SyntheticShape{"odd96", 192, 512, 2, 2, 1, 96, 1001, 512, false},
    SyntheticShape{"mqa", 256, 512, 2, 8, 1, 32, 515, 1024, false},
    SyntheticShape{"tied", 256, 512, 2, 4, 4, 64, 640, 512, true},
    SyntheticShape{"llama-3.2-1b", 2048, 8192, 16, 32, 8, 64, 128256, 131072, true, kLlama3},
    SyntheticShape{"qwen2.5-0.5b", 896, 4864, 24, 14, 2, 64, 151936, 32768, true, kQwen2},
    SyntheticShape{"gemma-3-1b", 1152, 6912, 26, 4, 1, 256, 262144, 32768, true, kGemma3},
    SyntheticShape{"qwen2-small", 256, 512, 2, 8, 2, 32, 640, 512, true, kQwen2},
    SyntheticShape{"qwen3-small", 128, 384, 2, 4, 2, 48, 515, 512, false, kQwen3},
    SyntheticShape{"qwen3-30b-a3b-4l", 2048, 768, 4, 32, 4, 128, 151936, 32768, false,
                   qwen3moe(128, 8)},
    SyntheticShape{"qwen3moe-small", 128, 96, 3, 4, 1, 48, 515, 512, false, qwen3moe(10, 6)},
    SyntheticShape{"gemma3-small", 128, 384, 7, 4, 1, 48, 515, 512, true, kGemma3Small},
    SyntheticShape{"gemma-4-e2b", 1536, 6144, 35, 8, 1, 512, 262144, 131072, true, kGemma4E2b},
    SyntheticShape{"gemma4-small", 128, 384, 9, 4, 1, 48, 515, 512, true, kGemma4Small},
    SyntheticShape{"gemma4moe-small", 128, 96, 6, 4, 1, 48, 515, 512, true, kGemma4MoeSmall},
    SyntheticShape{"gpt-oss-20b-4l", 2880, 2880, 4, 64, 8, 64, 201088, 131072, false,
                   gpt_oss(32, 4, 128)},
    SyntheticShape{"gpt-oss-small", 128, 96, 3, 4, 1, 48, 515, 512, false, gpt_oss(10, 6, 24)},
    SyntheticShape{"phi-3-mini", 3072, 8192, 32, 32, 32, 96, 32064, 4096, false, kPhi3},
    SyntheticShape{"phi3-small", 128, 384, 3, 4, 2, 48, 515, 512, false, kPhi3Small},
    SyntheticShape{"qwen3.5-0.8b", 1024, 3584, 24, 8, 2, 256, 248320, 262144, true,
                   with_mtp(qwen35({16, 16, 128, 128, 4}))},
    SyntheticShape{"qwen3.5-9b-8l", 4096, 12288, 8, 16, 4, 256, 248320, 262144, false,
                   with_mtp(qwen35({16, 32, 128, 128, 4}))},
    SyntheticShape{"qwen3.5-35b-a3b-4l", 2048, 512, 4, 16, 2, 256, 248320, 262144, false,
                   with_mtp(qwen35({16, 32, 128, 128, 4},
                                   {.n_experts = 256, .n_experts_used = 8, .d_shared = 512}))},
    SyntheticShape{"qwen3.5-small", 128, 384, 4, 4, 1, 48, 515, 512, false,
                   qwen35({2, 6, 24, 40, 4})},
    SyntheticShape{"qwen3.5-mtp-small", 128, 384, 4, 4, 1, 48, 515, 512, false,
                   with_mtp(qwen35({2, 6, 24, 40, 4}))},
    SyntheticShape{
        "qwen3.5moe-small", 128, 96, 4, 4, 1, 48, 515, 512, false,
        qwen35({2, 4, 40, 24, 4}, {.n_experts = 10, .n_experts_used = 6, .d_shared = 160})},
    SyntheticShape{"granitehybrid-small", 192, 384, 5, 4, 1, 48, 515, 512, true,
                   granite_hybrid({2, 16, 40, 24, 4})},
    SyntheticShape{
        "granitehybridmoe-small", 128, 96, 4, 4, 1, 48, 515, 512, false,
        granite_hybrid({2, 4, 64, 64, 4}, {.n_experts = 10, .n_experts_used = 6, .d_shared = 160})},
    SyntheticShape{"granite-4.0-h-1b-8l", 1536, 4096, 8, 12, 4, 128, 100352, 131072, true,
                   granite_hybrid({1, 48, 128, 64, 4})},
    SyntheticShape{"laguna-small", 128, 96, 5, 4, 1, 48, 515, 512, false,
                   laguna({.n_experts = 10, .n_experts_used = 6, .d_shared = 160, .d_dense = 384})},
    SyntheticShape{"lfm2-1.2b", 2048, 8192, 16, 32, 8, 64, 65536, 128000, true, lfm2()},
    SyntheticShape{"lfm2-small", 192, 384, 6, 4, 1, 48, 515, 512, true, lfm2()},
    SyntheticShape{"lfm2moe-small", 192, 96, 5, 4, 1, 48, 515, 512, true,
                   lfm2({.n_experts = 10, .n_experts_used = 6, .d_dense = 384})},
};

/// SplitMix64 (Steele, Lea, Flood 2014): a stream of well-mixed words from any start.
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  /// Nearly normal, variance 1: the centred sum of four uniform 16-bit numbers, each of variance
  /// 2^32 / 12.
  float normal() {
    const std::uint64_t word = next();
    const auto sum = static_cast<std::int64_t>((word & 0xFFFF) + (word >> 16 & 0xFFFF) +
                                               (word >> 32 & 0xFFFF) + (word >> 48));
    return static_cast<float>(sum - 131070) * 2.6429e-5F;
  }

 private:
  std::uint64_t state_;
};

/// What the values of a tensor are like.
enum class Values { kMatrix, kNorm, kBias, kDecay, kScale, kRopeDivisors };  // sinks: as biases

struct SyntheticTensor {
  std::string name;
  std::uint64_t n_cols;
  std::uint64_t n_rows;  ///< 1 for a vector
  std::uint64_t stack;   ///< matrices of that shape
  Values values;
  WeightType type;

  bool is_matrix() const { return values == Values::kMatrix; }
  std::uint64_t all_rows() const { return n_rows * stack; }
};

Values values_of(const TensorRole& role) {
  if (role.is_matrix()) return Values::kMatrix;
  if (role.name == "rope_freqs.weight") return Values::kRopeDivisors;
  if (role.name == "ssm_a") return Values::kDecay;
  if (role.name == "layer_output_scale.weight") return Values::kScale;
  const bool is_bias = role.name.find("norm") == std::string_view::npos;
  return is_bias ? Values::kBias : Values::kNorm;
}

/// What layer i of a gemma4 has beside those of others.
void be_gemma4(const SyntheticFamily& family, HyperParameters& config, std::size_t i) {
  LayerSpec& layer = config.layers[i];
  AttentionSpec& spec = *layer.attention();
  const bool has_window = (i + 1) % family.full_period != 0;
  spec.window = has_window ? family.window : 0;
  if (has_window) spec.head_dim = family.window_head_dim;
  spec.v_is_k = !has_window && !family.has_values;
  // Of the layers before the shared ones, the last of each kind.
  const std::size_t n_own = config.n_layers - family.n_shared;
  if (i >= n_own) spec.kv_of_layer = n_own - (has_window ? 2 : 1);
  if (i >= n_own && family.shared_are_wide) layer.ffns[0].d_ff *= 2;
  layer.has_output_scale = true;
  layer.d_input = family.d_input;
  config.d_inputs = config.n_layers * family.d_input;
}

HyperParameters hyper_parameters(const SyntheticShape& s) {
  HyperParameters config;
  config.architecture = find_architecture(s.family.architecture, s.family.n_experts > 0);
  config.n_layers = s.n_layers;
  config.d_model = s.d_model;
  config.n_vocab = s.n_vocab;
  config.context = s.context;
  config.ropes = {RopeSpec{.dims = s.head_dim / s.family.head_of_rope}};
  config.norm_eps = s.family.norm_eps;
  const LayerSpec layer{
      .mixer =
          AttentionSpec{.n_heads = s.n_heads, .n_kv_heads = s.n_kv_heads, .head_dim = s.head_dim},
      .ffns = {{.d_ff = s.d_ff,
                .n_experts = s.family.n_experts,
                .n_used = s.family.n_experts_used,
                .d_shared = s.family.d_shared,
                .weighs_shared = config.architecture->weighs_shared,
                .router = config.architecture->router,
                .own_norms = config.architecture->has_ffn_norms}}};
  config.layers.assign(config.n_layers, layer);
  const std::size_t period = config.architecture->full_attention_period;
  for (std::size_t i = 0; i < config.n_layers; ++i) {
    config.layers[i].attention()->output_gate = config.architecture->output_gate;
    if (period > 0 && (i + 1) % period != 0) config.layers[i].mixer = s.family.delta;
    if (s.family.conv_width > 0 && (i + 1) % kLfm2Period != 0)
      config.layers[i].mixer = ShortConvSpec{config.d_model, s.family.conv_width};
    if (config.architecture->has_mambas && (i + 1) % kLfm2Period != 0)
      config.layers[i].mixer = s.family.delta;
    if (s.family.window_head_dim > 0) be_gemma4(s.family, config, i);
  }
  if (s.family.d_dense > 0) config.layers[0].ffns = {{.d_ff = s.family.d_dense}};
  return config;
}

class Plan {
 public:
  explicit Plan(const SyntheticOptions& options) : options_(options) {
    const HyperParameters config = hyper_parameters(options.shape);
    add_tensors(config);
    if (options.shape.family.mtp) add_tensors(config.mtp());
  }

  const std::vector<SyntheticTensor>& tensors() const { return tensors_; }

 private:
  void add_tensors(const HyperParameters& config) {
    for (const auto& [role, layer] : roles_of_model(config.n_layers)) {
      if (config.is_mtp() && !role->per_layer) continue;
      const bool is_there =
          (role->name == "output.weight" && !options_.shape.tied_output) ||
          (role->name == "rope_freqs.weight" && (options_.shape.family.llama3.factor > 0 ||
                                                 options_.shape.family.window_head_dim > 0)) ||
          role->name == "exp_probs_b.bias" || role->name == "ssm_conv1d.bias" ||
          (role->name == "nextn.shared_head_norm.weight" && config.is_mtp());
      const Need need = need_of(config, *role, layer);
      if (need == Need::kAbsent || (need == Need::kOptional && !is_there)) continue;
      const RowsInTensor rows = rows_in_tensor(config, *role, layer);
      const std::string name = name_in_file(config, *role, layer);
      if (rows.first > 0 || std::ranges::count(tensors_, name, &SyntheticTensor::name) > 0)
        continue;
      add({name, role->cols.of(config, layer), role->is_matrix() ? rows.all : 1,
           role->stack.of(config, layer), values_of(*role), WeightType::kF32});
    }
  }

  void add(SyntheticTensor made) {
    const SyntheticShape& s = options_.shape;
    const GgufTensor tensor{.name = made.name,
                            .type = WeightType::kF16,
                            .n_dims = made.stack > 1 ? 3U : 2U,
                            .dims = {made.n_cols, made.n_rows, made.stack, 1},
                            .n_elements = made.n_cols * made.all_rows()};
    const ModelShape shape{s.n_layers, s.n_heads / s.n_kv_heads, s.tied_output};
    if (made.is_matrix() && is_recipe_tensor(tensor))
      made.type = fallback_type(recipe_type(*options_.recipe, shape, tensor), made.n_cols);
    tensors_.push_back(std::move(made));
  }

  const SyntheticOptions& options_;
  std::vector<SyntheticTensor> tensors_;
};

void add_metadata(GgufWriter& writer, const SyntheticOptions& options) {
  const SyntheticShape& s = options.shape;
  const HyperParameters config = hyper_parameters(s);
  const Architecture& architecture = *config.architecture;
  const HyperParameterKeys& keys = architecture.keys;
  const auto number = [&](std::string_view key, std::uint64_t value) {
    writer.add_number<std::uint32_t>(key, static_cast<std::uint32_t>(value));
  };
  const auto size = [&](std::string_view key, std::uint64_t value) {
    number(architecture.key(key), value);
  };
  writer.add_string("general.architecture", architecture.name);
  writer.add_string("general.name", fmt::format("synthetic {} seed {}", s.name, options.seed));
  number("general.file_type", options.recipe->file_type);
  number("general.quantization_version", 2);
  size(keys.n_layers, s.n_layers + (s.family.mtp ? 1 : 0));
  if (s.family.mtp) size(keys.n_mtp_layers, 1);
  size(keys.context, s.context);
  size(keys.d_model, s.d_model);
  if (s.family.shared_are_wide) {
    std::vector<std::int32_t> widths;
    for (const LayerSpec& layer : config.layers)
      widths.push_back(static_cast<std::int32_t>(layer.ffns[0].d_ff));
    writer.add_numbers<std::int32_t>(architecture.key(keys.d_ff), widths);
  } else {
    size(keys.d_ff, s.family.d_dense > 0 ? s.family.d_dense : s.d_ff);
  }
  if (s.family.d_dense > 0) {
    size(keys.d_expert, s.d_ff);
    size(keys.n_dense_layers, 1);
    size(keys.router, 2);  // sigmoids
  }
  if (s.family.n_experts > 0) {
    size(keys.n_experts, s.family.n_experts);
    size(keys.n_experts_used, s.family.n_experts_used);
  }
  size(keys.n_heads, s.n_heads);
  if (s.family.conv_width > 0 || architecture.has_mambas) {
    std::vector<std::int32_t> kv_heads;
    for (const LayerSpec& layer : config.layers)
      kv_heads.push_back(static_cast<std::int32_t>(layer.n_kv_heads()));
    writer.add_numbers<std::int32_t>(architecture.key(keys.n_kv_heads), kv_heads);
  } else {
    size(keys.n_kv_heads, s.n_kv_heads);
  }
  if (s.family.conv_width > 0) size(keys.conv_width, s.family.conv_width);
  if (architecture.may_lack_rope) writer.add_number<bool>(architecture.key(keys.has_rope), false);
  size(keys.head_dim, s.head_dim);
  size(keys.value_dim, s.head_dim);
  size(keys.rope_dims, config.ropes[0].dims);
  if (const DeltaNetSpec& delta = s.family.delta; delta.n_v_heads > 0) {
    if (!delta.is_mamba) {
      size(keys.full_attention_period, architecture.full_attention_period);
      // A text's positions are equal, but llama.cpp wants to know how they are divided.
      const auto pairs = static_cast<std::int32_t>(config.ropes[0].dims / 2);
      writer.add_numbers<std::int32_t>(
          architecture.key("rope.dimension_sections"),
          std::array{pairs - 2 * (pairs / 3), pairs / 3, pairs / 3, 0});
    }
    size(keys.conv_width, delta.conv_width);
    size(keys.delta_k_dim, delta.k_dim);
    size(keys.delta_k_heads, delta.n_k_heads);
    size(keys.delta_v_heads, delta.n_v_heads);
    size(keys.delta_v_rows, delta.v_rows());
  }
  if (s.family.d_shared > 0) size(keys.d_shared, s.family.d_shared);
  size(keys.n_vocab, s.n_vocab);
  writer.add_number<float>(architecture.key(keys.norm_eps), config.norm_eps);
  writer.add_number<float>(architecture.key(keys.rope_theta), s.family.rope_theta);
  if (s.family.window > 0)
    writer.add_number<std::uint32_t>(architecture.key(keys.sliding_window), s.family.window);
  if (s.family.window_head_dim > 0) {
    const auto windowed = std::make_unique<bool[]>(config.n_layers);
    for (std::size_t i = 0; i < config.n_layers; ++i) windowed[i] = config.layers[i].window() > 0;
    writer.add_numbers<bool>(architecture.key(keys.window_period),
                             {windowed.get(), config.n_layers});
    size(keys.window_head_dim, s.family.window_head_dim);
    size(keys.window_value_dim, s.family.window_head_dim);
    size(keys.window_rope_dims, s.family.window_head_dim);
    size(keys.shared_kv_layers, s.family.n_shared);
    size(keys.layer_input, s.family.d_input);
    writer.add_number<float>(architecture.key(keys.logit_cap), 30.0F);
  }
  if (s.family.yarn.factor > 0) {
    writer.add_string(architecture.key(keys.rope_scaling), "yarn");
    writer.add_number<float>(architecture.key(keys.rope_scale), s.family.yarn.factor);
    size(keys.original_context, s.family.yarn.original_context);
  }
  if (s.family.pre_tokenizer.empty()) {
    add_synthetic_vocab(writer, s.n_vocab, options.seed);
  } else {
    add_synthetic_byte_vocab(writer, s.n_vocab, options.seed, s.family.pre_tokenizer);
  }
}

/// Divisors of the frequencies as Llama 3 has them (transformers' modeling_rope_utils): a pair that
/// turns often within the original context stays, a slow one is slowed by the factor, and in
/// between the frequency is interpolated.
void fill_rope_divisors(const SyntheticFamily& family, std::span<float> divisors) {
  if (family.window_head_dim > 0) {  // Gemma 4's: only the first quarter turns
    std::ranges::fill(divisors, 1e30F);
    std::ranges::fill(divisors.first(divisors.size() / 4), 1.0F);
    return;
  }
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double frequency =
        contract::power(static_cast<double>(family.rope_theta),
                        -static_cast<double>(i) / static_cast<double>(divisors.size()));
    const double turns = family.llama3.original_context * frequency / (2 * std::numbers::pi);
    const double kept = std::clamp(
        (turns - family.llama3.low_turns) / (family.llama3.high_turns - family.llama3.low_turns),
        0.0, 1.0);
    divisors[i] = static_cast<float>(1 / (kept + (1 - kept) / family.llama3.factor));
  }
}

/// Weights of one row: deviation 1/sqrt(n_cols) keeps activations of order 1 through the layers.
void fill_row(const SyntheticTensor& tensor, const SyntheticShape& shape, std::uint64_t seed,
              std::span<float> row) {
  if (tensor.values == Values::kRopeDivisors) return fill_rope_divisors(shape.family, row);
  SplitMix random(seed);
  const float deviation = tensor.values == Values::kMatrix
                              ? 1.0F / std::sqrt(static_cast<float>(row.size()))
                          : tensor.values == Values::kNorm ? 0.1F
                                                           : 0.5F;
  const float mean = tensor.values == Values::kNorm ? 1.0F : 0.0F;
  for (float& w : row) w = mean + deviation * random.normal();
  if (tensor.values == Values::kScale)
    for (float& w : row) w = 1 + w / 4;
  if (tensor.values == Values::kDecay)
    for (float& w : row) w = -0.05F - 4 * w * w;
}

}  // namespace

std::optional<SyntheticShape> find_synthetic_shape(std::string_view name) {
  for (const SyntheticShape& shape : kShapes) {
    if (shape.name == name) return shape;
  }
  return std::nullopt;
}

std::string synthetic_shape_names() {
  std::string names;
  for (const SyntheticShape& shape : kShapes) {
    names += (names.empty() ? "" : ", ") + std::string(shape.name);
  }
  return names;
}

Status write_synthetic_model(const SyntheticOptions& options, const ByteSink& sink) {
  const Plan plan(options);
  GgufWriter writer;
  add_metadata(writer, options);
  std::uint64_t total = 0;
  for (const SyntheticTensor& tensor : plan.tensors()) {
    const std::array<std::uint64_t, 3> dims = {tensor.n_cols, tensor.n_rows, tensor.stack};
    const std::array<std::uint64_t, 2> of_vector = {tensor.n_cols, tensor.stack};
    const std::size_t n_dims = tensor.stack > 1 ? 2 : 1;
    writer.add_tensor(tensor.name, tensor.type,
                      tensor.is_matrix() ? std::span<const std::uint64_t>(dims).first(n_dims + 1)
                                         : std::span(of_vector).first(n_dims));
    total += tensor.n_cols * tensor.all_rows();
  }
  GgufStream stream(writer, sink);
  LLM_RETURN_IF_ERROR(stream.begin());
  std::uint64_t done = 0;
  for (std::size_t t = 0; t < plan.tensors().size(); ++t) {
    const SyntheticTensor& tensor = plan.tensors()[t];
    const std::size_t stride = row_bytes(tensor.type, tensor.n_cols);
    std::vector<std::byte> bytes(tensor.all_rows() * stride);
    const std::uint64_t tensor_seed = SplitMix(options.seed * 0x10001U + t).next();
    run_parallel(options.threads, [&](Worker worker) {
      std::vector<float> row(tensor.n_cols);
      const auto [begin, end] = worker.share(tensor.all_rows());
      for (std::size_t r = begin; r < end; ++r) {
        fill_row(tensor, options.shape, tensor_seed + r, row);
        quantize_row(tensor.type, row, std::span(bytes).subspan(r * stride, stride));
      }
    });
    LLM_RETURN_IF_ERROR(stream.write(bytes));
    done += tensor.n_cols * tensor.all_rows();
    if (options.progress) options.progress(done, total);
  }
  return stream.finish();
}

}  // namespace llm
