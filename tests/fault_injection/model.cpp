// Faults of a loaded model, and what makes other models of it.

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>

#include "engine/model/tensor_roles.h"
#include "tests/fault_injection/checks.h"

namespace llm::faults {
namespace {

/// The one process that changes it owns it alone.
ModelWeights& weights_of(const Model& model) { return const_cast<ModelWeights&>(model.weights()); }
HyperParameters& config_of(const Model& model) {
  return const_cast<HyperParameters&>(model.config());
}

std::span<const float> divisors_of(const Model& model, const RopeSpec& rope) {
  return rope.has_divisors ? model.weights().rope_divisors.span() : std::span<const float>();
}

const TensorRole* role_of(std::string_view name) {
  const auto found = std::ranges::find(kTensorRoles, name, &TensorRole::name);
  return found == std::end(kTensorRoles) ? nullptr : &*found;
}

/// "exchange:role=attn_q.weight:layer=1:with=attn_output.weight", or with_layer=2: two tensors of
/// equal shape in each other's place.
void exchange(const Fault& fault, const Model& model) {
  ModelWeights& weights = weights_of(model);
  const TensorRole* a = role_of(fault.name("role"));
  const TensorRole* b = fault.name("with").empty() ? a : role_of(fault.name("with"));
  const int layer = static_cast<int>(fault.number("layer").value_or(kOutsideLayers));
  const int other = static_cast<int>(fault.number("with_layer").value_or(layer));
  if (a == nullptr || b == nullptr ||
      std::max(layer, other) >= static_cast<int>(weights.layers.size()))
    return;
  const auto swap = [](auto& x, auto& y, bool may) {
    if (may) std::swap(x, y), note_struck();
  };
  if (a->is_matrix()) {
    PackedMatrix& x = a->matrix.of(weights, layer);
    PackedMatrix& y = b->matrix.of(weights, other);
    return swap(x, y, x.bytes() > 0 && x.n_rows() == y.n_rows() && x.n_cols() == y.n_cols());
  }
  auto& x = a->vector.of(weights, layer);
  auto& y = b->vector.of(weights, other);
  swap(x, y, x.size() > 0 && x.size() == y.size() && !std::ranges::equal(x.span(), y.span()));
}

/// Where a faulty order puts row `row` of heads whose pairs RoPE turns.
std::size_t wrong_row(const Fault& fault, const HyperParameters& config, int layer,
                      std::size_t row) {
  const std::size_t head_dim = config.attention(static_cast<std::size_t>(layer)).head_dim;
  const std::size_t rope_dims = config.rope_of(static_cast<std::size_t>(layer)).dims;
  const std::size_t head = row / head_dim;
  const std::size_t dim = row % head_dim;
  if (dim >= rope_dims || !fault.holds({{"role", fault.name("role")},
                                        {"layer", fault.number("layer").value_or(0)},
                                        {"head", head},
                                        {"dim", dim},
                                        {"dims_after", rope_dims - 1 - dim}}))
    return row;
  const std::size_t first = head * head_dim;
  if (fault.is("swapped")) return first + (dim ^ 1U);
  if (fault.is("next_pair")) return first + (dim + 2) % rope_dims;
  if (fault.is("halves")) return first + dim % 2 * (rope_dims / 2) + dim / 2;
  return row;
}

/// "rows:role=attn_k.weight:effect=halves": rows of q or k in another order, in every layer.
void reorder(const Fault& fault, const Model& model) {
  const TensorRole* role = role_of(fault.name("role"));
  ModelWeights& weights = weights_of(model);
  const HyperParameters& config = model.config();
  for (int layer = 0; role != nullptr && layer < static_cast<int>(weights.layers.size()); ++layer) {
    if (!role->is_matrix()) {
      const auto values = role->vector.of(weights, layer).span();
      const std::vector<float> right(values.begin(), values.end());
      for (std::size_t i = 0; i < right.size(); ++i)
        put(values[i], right[wrong_row(fault, config, layer, i)]);
      continue;
    }
    PackedMatrix& matrix = role->matrix.of(weights, layer);
    const std::size_t bytes = row_bytes(matrix.type(), matrix.n_cols());
    std::vector<std::byte> rows(matrix.n_rows() * bytes);
    for (std::size_t r = 0; r < matrix.n_rows(); ++r)
      matrix.extract_row(wrong_row(fault, config, layer, r),
                         std::span(rows).subspan(r * bytes, bytes));
    auto packed =
        PackedMatrix::pack(matrix.type(), matrix.n_rows(), matrix.n_cols(), rows, "a fault");
    if (packed.ok()) matrix = *std::move(packed), note_struck();
  }
}

/// "panel:role=ffn_up.weight:effect=...": a matrix whose panels are others, or lie wrong.
void spoil_panels(const Fault& fault, const Model& model) {
  const TensorRole* role = role_of(fault.name("role"));
  const int layer = static_cast<int>(fault.number("layer").value_or(0));
  PackedMatrix& matrix = role->matrix.of(weights_of(model), layer);
  const std::byte* first = matrix.panels(0, matrix.n_panels()).first;
  auto copy = std::make_shared<std::vector<std::byte>>(first, first + matrix.bytes());
  const std::size_t size = matrix.panel_bytes();
  const std::size_t last = matrix.n_panels() - 1;
  if (fault.is("last_again"))
    std::copy_n(copy->data() + (last - 1) * size, size, copy->data() + last * size);
  if (fault.is("fields_reversed"))
    std::reverse(copy->begin(), copy->begin() + static_cast<std::ptrdiff_t>(size));
  if (fault.is("bit")) (*copy)[copy->size() / 2] ^= std::byte{1};
  note_struck();
  matrix = PackedMatrix(matrix.shape(), {copy, copy->data()});
}

AlignedBuffer<float> drawn(std::size_t n, float least, float most, std::uint32_t seed) {
  std::mt19937 random(seed);
  auto buffer = AlignedBuffer<float>::allocate(n, "a test").value();
  for (float& x : buffer.span())
    x = least + (most - least) * static_cast<float>(random()) * 0x1p-32F;
  return buffer;
}

}  // namespace

/// In programs that know nothing of faults, a model has its own as soon as it is loaded.
LLM_WRAP(load,
         "_ZN3llm5Model4loadERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS_"
         "11LoadOptionsE",
         Result<std::shared_ptr<const Model>>, const std::string& path,
         const LoadOptions& options) {
  auto model = real_load(path, options);
  if (model.ok()) change_model(**model);
  return model;
}

/// "type_id:type=Q4_K:with=Q5_K": the parser takes each for the other.
LLM_WRAP(type_from_id, "_ZN3llm19weight_type_from_idEj", std::optional<WeightType>,
         std::uint32_t id) {
  const auto right = real_type_from_id(id);
  const Fault* fault = planted("type_id");
  if (fault == nullptr || !right) return right;
  const auto one = weight_type_from_name(fault->name("type"));
  const auto other = weight_type_from_name(fault->name("with"));
  if (right != one && right != other) return right;
  note_struck();
  return right == one ? other : one;
}

/// "sizes:of=d_ff": from ne[0] of a matrix in place of ne[1].
LLM_WRAP(hyper_parameters, "_ZN3llm21read_hyper_parametersERKNS_8GgufFileE",
         Result<HyperParameters>, const GgufFile& gguf) {
  auto config = real_hyper_parameters(gguf);
  if (config.ok() && strikes("sizes", {{"of", "d_ff"}}))
    for (LayerSpec& layer : config->layers)
      layer.ffns[0].d_ff = gguf.find_tensor("blk.0.ffn_gate.weight")->dims[0];
  return config;
}

void change_model(const Model& model) {
  for (std::size_t n = 0; const Fault* fault = planted("exchange", n); ++n) exchange(*fault, model);
  if (const Fault* fault = planted("rows")) reorder(*fault, model);
  if (const Fault* fault = planted("panel")) spoil_panels(*fault, model);
  if (const Fault* fault = planted("config")) {
    HyperParameters& config = config_of(model);
    note_struck();
    if (fault->is("eps")) config.norm_eps *= config.norm_eps < 1e-5F ? 10.0F : 0.1F;
    for (std::size_t i = 0; i < config.ropes.size(); ++i) {
      if (fault->is("theta")) config.ropes[i].theta *= 50;
      if (fault->is("rope_scale")) config.ropes[i].scale *= 2;
      const_cast<Rope&>(model.ropes()[i]) =
          Rope(config.ropes[i], divisors_of(model, config.ropes[i]));
    }
  }
}

namespace {
/// Draws vectors of every layer: a member, its size, and the range of its values.
struct Drawn {
  AlignedBuffer<float> LayerWeights::*member;
  std::size_t size;
  float least;
  float most;
};
void draw(const Model& model, std::initializer_list<Drawn> vectors) {
  std::uint32_t seed = 0;
  for (LayerWeights& w : weights_of(model).layers)
    for (const Drawn& v : vectors) w.*v.member = drawn(v.size, v.least, v.most, ++seed);
}
}  // namespace

void add_biases(const Model& model) {
  const std::size_t q = model.config().most(&LayerSpec::q_rows);
  const std::size_t kv = model.config().most(&LayerSpec::kv_rows);
  draw(model, {{&LayerWeights::attn_q_bias, q, -1, 1},
               {&LayerWeights::attn_k_bias, kv, -1, 1},
               {&LayerWeights::attn_v_bias, kv, -1, 1}});
}

void add_head_norms(const Model& model) {
  const std::size_t n = model.config().most(&LayerSpec::head_dim);
  draw(model, {{&LayerWeights::attn_q_norm, n, 0.5F, 2}, {&LayerWeights::attn_k_norm, n, 0.5F, 2}});
}

void add_post_norms(const Model& model) {
  for (LayerSpec& layer : config_of(model).layers) layer.has_post_norms = true;
  const std::size_t n = model.config().d_model;
  draw(model,
       {{&LayerWeights::attn_post_norm, n, 0.5F, 2}, {&LayerWeights::ffn_post_norm, n, 0.5F, 2}});
}

void add_windows(const Model& model) {
  HyperParameters& config = config_of(model);
  auto& ropes = const_cast<std::vector<Rope>&>(model.ropes());
  config.ropes.push_back(config.ropes[0]);
  config.ropes[1].theta = 100;
  ropes.emplace_back(config.ropes[1], divisors_of(model, config.ropes[1]));
  for (std::size_t i = 0; i < config.layers.size(); i += 2) {
    config.layers[i].attention()->window = 3;
    config.layers[i].attention()->rope = 1;
  }
}

void add_sinks(const Model& model) {
  HyperParameters& config = config_of(model);
  draw(model, {{&LayerWeights::attn_sinks, config.most(&LayerSpec::n_heads), -2, 2},
               {&LayerWeights::attn_output_bias, config.d_model, -1, 1}});
  for (LayerSpec& layer : config.layers) layer.ffns[0].activation = Activation::kSwiGluOai;
}

void cut_model(const Model& model, std::size_t n_layers, std::size_t n_vocab) {
  ModelWeights& weights = weights_of(model);
  HyperParameters& config = config_of(model);
  config.n_layers = std::min(config.n_layers, n_layers);
  config.layers.resize(config.n_layers);
  weights.layers.resize(config.n_layers);
  if (n_vocab >= config.n_vocab) return;
  config.n_vocab = n_vocab;
  PackedShape shape = weights.output().shape();
  shape.n_rows = n_vocab;
  const std::byte* panels = weights.output().panels(0, shape.n_panels()).first;
  weights.own_output = PackedMatrix(shape, {std::shared_ptr<void>(), panels});
}

}  // namespace llm::faults
