#include "tools/llmsynth/synthetic_model.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <vector>

#include "base/thread_team.h"
#include "engine/model/tensor_name.h"
#include "engine/model/tensor_roles.h"
#include "quant/formats/quantize/quantize_row.h"
#include "tools/llmsynth/synthetic_vocab.h"

namespace llm {
namespace {

constexpr std::array kShapes = {
    SyntheticShape{"tinyllama", 2048, 5632, 22, 32, 4, 64, 32000, 2048, false},
    SyntheticShape{"tinyllama-2l", 2048, 5632, 2, 32, 4, 64, 32000, 2048, false},
    SyntheticShape{"odd80", 320, 864, 2, 4, 2, 80, 403, 512, false},
    SyntheticShape{"odd96", 192, 512, 2, 2, 1, 96, 1001, 512, false},
    SyntheticShape{"mqa", 256, 768, 2, 8, 1, 32, 515, 1024, false},
    SyntheticShape{"tied", 256, 512, 2, 4, 4, 64, 640, 512, true},
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

struct SyntheticTensor {
  std::string name;
  std::uint64_t n_cols;
  std::uint64_t n_rows;  ///< 1 for a norm
  bool is_norm;
  WeightType type;
};

HyperParameters hyper_parameters(const SyntheticShape& s) {
  HyperParameters config;
  config.architecture = find_architecture("llama");
  config.n_layers = s.n_layers;
  config.d_model = s.d_model;
  config.d_ff = s.d_ff;
  config.n_heads = s.n_heads;
  config.n_kv_heads = s.n_kv_heads;
  config.head_dim = s.head_dim;
  config.n_vocab = s.n_vocab;
  config.context = s.context;
  config.rope_dims = s.head_dim;
  return config;
}

class Plan {
 public:
  explicit Plan(const SyntheticOptions& options) : options_(options) {
    const HyperParameters config = hyper_parameters(options.shape);
    for (const auto& [role, layer] : roles_of_model(config.n_layers)) {
      const bool has_output = role->name == "output.weight" && !options.shape.tied_output;
      if (need_of(*config.architecture, *role) != Need::kRequired && !has_output) continue;
      add(tensor_name(role->name, layer), role->cols.of(config), role->rows.of(config),
          !role->is_matrix());
    }
  }

  const std::vector<SyntheticTensor>& tensors() const { return tensors_; }

 private:
  void add(std::string name, std::uint64_t n_cols, std::uint64_t n_rows, bool is_norm) {
    const SyntheticShape& s = options_.shape;
    const GgufTensor tensor{.name = name,
                            .type = WeightType::kF16,
                            .n_dims = 2,
                            .dims = {n_cols, n_rows, 1, 1},
                            .n_elements = n_cols * n_rows};
    const ModelShape shape{s.n_layers, s.n_heads / s.n_kv_heads, s.tied_output};
    const WeightType type =
        is_norm ? WeightType::kF32
                : fallback_type(recipe_type(*options_.recipe, shape, tensor), n_cols);
    tensors_.push_back({std::move(name), n_cols, n_rows, is_norm, type});
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
  size(keys.n_layers, s.n_layers);
  size(keys.context, s.context);
  size(keys.d_model, s.d_model);
  size(keys.d_ff, s.d_ff);
  size(keys.n_heads, s.n_heads);
  size(keys.n_kv_heads, s.n_kv_heads);
  size(keys.head_dim, s.head_dim);
  size(keys.value_dim, s.head_dim);
  size(keys.rope_dims, s.head_dim);
  size(keys.n_vocab, s.n_vocab);
  writer.add_number<float>(architecture.key(keys.norm_eps), config.norm_eps);
  writer.add_number<float>(architecture.key(keys.rope_theta), config.rope_theta);
  add_synthetic_vocab(writer, s.n_vocab, options.seed);
}

/// Weights of one row: deviation 1/sqrt(n_cols) keeps activations of order 1 through the layers.
void fill_row(const SyntheticTensor& tensor, std::uint64_t seed, std::span<float> row) {
  SplitMix random(seed);
  const float deviation = tensor.is_norm ? 0.1F : 1.0F / std::sqrt(static_cast<float>(row.size()));
  const float mean = tensor.is_norm ? 1.0F : 0.0F;
  for (float& w : row) w = mean + deviation * random.normal();
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
    const std::array<std::uint64_t, 2> dims = {tensor.n_cols, tensor.n_rows};
    writer.add_tensor(tensor.name, tensor.type, std::span(dims).first(tensor.is_norm ? 1U : 2U));
    total += tensor.n_cols * tensor.n_rows;
  }
  GgufStream stream(writer, sink);
  LLM_RETURN_IF_ERROR(stream.begin());
  std::uint64_t done = 0;
  for (std::size_t t = 0; t < plan.tensors().size(); ++t) {
    const SyntheticTensor& tensor = plan.tensors()[t];
    const std::size_t stride = row_bytes(tensor.type, tensor.n_cols);
    std::vector<std::byte> bytes(tensor.n_rows * stride);
    const std::uint64_t tensor_seed = SplitMix(options.seed * 0x10001U + t).next();
    run_parallel(options.threads, [&](Worker worker) {
      std::vector<float> row(tensor.n_cols);
      const auto [begin, end] = worker.share(tensor.n_rows);
      for (std::size_t r = begin; r < end; ++r) {
        fill_row(tensor, tensor_seed + r, row);
        quantize_row(tensor.type, row, std::span(bytes).subspan(r * stride, stride));
      }
    });
    LLM_RETURN_IF_ERROR(stream.write(bytes));
    done += tensor.n_cols * tensor.n_rows;
    if (options.progress) options.progress(done, total);
  }
  return stream.finish();
}

}  // namespace llm
