#include "engine/forward/reference/interpreter.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "engine/forward/reference/delta_net.h"
#include "engine/forward/reference/ops.h"
#include "engine/forward/route.h"
#include "engine/model/tensor_roles.h"
#include "quant/formats/dequantize.h"
#include "quant/numerics/delta_net.h"

namespace llm::reference {
namespace {

static_assert(std::ranges::all_of(kTaps, [](const Tap& tap) {
  // By index: with sanitizers g++ 12 takes no comparison of a pointer for a constant.
  return std::ranges::all_of(std::array{tap.weight, tap.bias}, [&](std::string_view role) {
    const std::size_t i = role_index(role);
    return role.empty() || (i < kTensorRoles.size() && kTensorRoles[i].per_layer == tap.per_layer);
  });
}));

constexpr std::string_view kExpertBias = "exp_probs_b.bias";

/// Row t of n.
template <typename T>
std::span<T> row(std::span<T> matrix, std::size_t t, std::size_t n) {
  return matrix.subspan(t * (matrix.size() / n), matrix.size() / n);
}

}  // namespace

const PackedMatrix* Interpreter::matrix(const Tap& tap, int layer) const {
  const TensorRole* role = find_role(tap.weight);
  if (role == nullptr || !role->is_matrix()) return nullptr;
  const ModelWeights& weights = model_.weights();
  return tap.weight == "output.weight" ? &weights.output() : &role->matrix.of(weights, layer);
}

std::span<const float> Interpreter::vector(std::string_view role, int layer) const {
  if (role.empty()) return {};
  return find_role(role)->vector.of(model_.weights(), layer).span();
}

std::vector<float> Interpreter::run(const Tap& tap, int layer, const OpInputs& in) const {
  const std::size_t n = in.positions.size();
  const std::span<const float> x = in.taps[0];
  std::vector<float> out(n * tap.width.of(model_.config(), layer));
  const std::span<float> y(out);
  switch (tap.op) {
    case TapOp::kEmbedding:
      embed(tap, layer, in.tokens, y);
      break;
    case TapOp::kHeadNorm:
      std::ranges::copy(x, y.begin());
      norm_heads(y, std::vector<float>(config_of(layer).head_dim(), 1.0F),
                 model_.config().norm_eps);
      break;
    case TapOp::kLayerInputs:
      std::ranges::copy(in.taps[1], y.begin());
      scale(y, input_factors(model_.config()).projection);
      norm_heads(y, vector(tap.weight, layer), model_.config().norm_eps);
      add(x, y);
      scale(y, input_factors(model_.config()).sum);
      break;
    case TapOp::kLayerGate:
      for (std::size_t t = 0; t < n; ++t)
        activate(ffn(layer).activation, row(x, t, n),
                 row(in.taps[1], t, n).subspan(static_cast<std::size_t>(layer) * (x.size() / n)),
                 row(y, t, n));
      break;
    case TapOp::kScale:
      std::ranges::copy(x, y.begin());
      scale(y, vector(tap.weight, layer)[0]);
      break;
    case TapOp::kNorm:
      for (std::size_t t = 0; t < n; ++t)
        rms_norm(row(x, t, n), vector(tap.weight, layer), model_.config().norm_eps, row(y, t, n));
      break;
    case TapOp::kProduct:
      for (const Product& product : products(tap, layer, x, in.taps[1])) {
        const std::size_t n_rows = product.w.n_rows();
        std::vector<float> part(product.places.size() * n_rows);
        matmul(product.w, model_.compute(), product.x, part);
        if (in.taps[1].empty()) add_updates(*matrix(tap, layer), in.adapters, product.x, part);
        for (std::size_t i = 0; i < product.places.size(); ++i) {
          const std::span<float> to = y.subspan(product.places[i] * n_rows, n_rows);
          std::ranges::copy(std::span(part).subspan(i * n_rows, n_rows), to.begin());
          if (!product.bias.empty()) add(product.bias, to);
          for (float& value : to) value /= divisor(tap);
          for (float& value : to)
            if (cap(tap) > 0) value = contract::soft_cap(value, cap(tap));
        }
      }
      break;
    case TapOp::kRope:
      std::ranges::copy(x, y.begin());
      rotate(tap, layer, in.positions, y);
      break;
    case TapOp::kAttention:
      attend(tap, layer, in, y);
      break;
    case TapOp::kConvolution:
      convolve(tap, layer, in, y);
      break;
    case TapOp::kMultiply:
      for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] * in.taps[1][i];
      break;
    case TapOp::kDeltaRule:
    case TapOp::kScan:
      delta_rule(tap, layer, in, y);
      break;
    case TapOp::kNormOfGated: {
      activate(Activation::kSwiGlu, in.taps[1], x, y);
      const std::size_t size = config_of(layer).delta_norm_size();
      const auto weight = vector(tap.weight, layer);
      for (std::size_t i = 0; i < y.size(); i += size)
        rms_norm(
            std::vector<float>(y.begin() + std::ptrdiff_t(i), y.begin() + std::ptrdiff_t(i + size)),
            weight.subspan(i % weight.size(), size), model_.config().norm_eps, y.subspan(i, size));
      break;
    }
    case TapOp::kGatedNorm:
      std::ranges::copy(x, y.begin());
      norm_heads(y, vector(tap.weight, layer), model_.config().norm_eps);
      activate(Activation::kSwiGlu, in.taps[1], std::vector<float>(y.begin(), y.end()), y);
      break;
    case TapOp::kOutputGate:
      open_gate(layer, in.taps[1], x, y);
      break;
    case TapOp::kActivation:
      activate(ffn(layer).activation, x, in.taps[1], y);
      break;
    case TapOp::kSharedSum:
      std::ranges::copy(x, y.begin());
      if (in.taps[2].empty()) {
        add(in.taps[1], y, 1.0F);
        break;
      }
      for (std::size_t t = 0; t < n; ++t)
        axpy(contract::activate(Activation::kSigmoid, in.taps[2][t], 1.0F), row(in.taps[1], t, n),
             row(y, t, n));
      break;
    case TapOp::kMix:
      mix(layer, in.taps[1], x, y);
      break;
    case TapOp::kSum:
      std::ranges::copy(x, y.begin());
      add(in.taps[1], y, model_.config().residual_scale);
      break;
  }
  return out;
}

void Interpreter::store(std::span<const std::size_t> positions, std::span<const float> keys,
                        std::span<const float> values, SequenceState& cache,
                        std::size_t cache_layer) const {
  const std::size_t n = positions.size();
  for (std::size_t t = 0; t < n; ++t)
    cache.store(cache_layer, 0, positions[t], row(keys, t, n), row(values, t, n));
}

void Interpreter::open_gate(int layer, std::span<const float> gates, std::span<const float> x,
                            std::span<float> y) const {
  if (config_of(layer).attention()->output_gate == OutputGate::kSigmoid)
    return activate(Activation::kSigmoid, gates, x, y);
  const std::size_t each = x.size() / gates.size();  // values of a gate
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * contract::softplus(gates[i / each]);
}

void Interpreter::convolve(const Tap& tap, int layer, const OpInputs& in,
                           std::span<float> y) const {
  const ConvolutionSpec spec = config_of(layer).convolution();
  const ConvTail tail(spec, in.cache->state(in.cache_layer));
  const std::size_t n = in.positions.size();
  for (std::size_t t = 0; t < n; ++t)
    reference::convolve(spec, row(in.taps[0], t, n), vector(tap.weight, layer),
                        vector(tap.bias, layer), tail, row(y, t, n));
}

void Interpreter::delta_rule(const Tap& tap, int layer, const OpInputs& in,
                             std::span<float> y) const {
  const DeltaNetSpec& spec = *model_.config().layers[static_cast<std::size_t>(layer)].delta_net();
  const DeltaState state(spec, in.cache->state(in.cache_layer));
  const std::size_t n = in.positions.size();
  if (tap.op == TapOp::kScan) {
    for (std::size_t t = 0; t < n; ++t)
      reference::scan(spec, row(in.taps[0], t, n), row(in.taps[1], t, n), vector(tap.bias, layer),
                      vector(tap.weight, layer), vector("ssm_d", layer), state, row(y, t, n));
    return;
  }
  for (std::size_t t = 0; t < n; ++t)
    reference::delta_rule(spec, row(in.taps[0], t, n), row(in.taps[2], t, n), row(in.taps[1], t, n),
                          vector(tap.bias, layer), vector(tap.weight, layer), state, row(y, t, n));
}

std::vector<Product> Interpreter::products(const Tap& tap, int layer, std::span<const float> x,
                                           std::span<const float> router) const {
  const PackedMatrix& w = *matrix(tap, layer);
  const std::span<const float> bias = vector(tap.bias, layer);
  if (router.empty()) {
    std::vector<std::size_t> places(x.size() / w.n_cols());
    std::iota(places.begin(), places.end(), std::size_t{0});
    return {{w, bias, {x.begin(), x.end()}, std::move(places)}};
  }
  const FfnSpec& spec = ffn(layer);
  const std::size_t used = spec.n_used;
  const std::size_t n = router.size() / spec.n_experts;
  const std::size_t n_rows = w.n_rows() / spec.n_experts;
  const bool is_cut = x.size() == n * used * w.n_cols();
  std::vector<Product> of_expert(spec.n_experts);
  std::vector<std::uint32_t> chosen(used);
  std::vector<float> weights(used);
  for (std::size_t t = 0; t < n; ++t) {
    route(spec, row(router, t, n), vector(kExpertBias, layer), chosen, weights);
    for (std::size_t j = 0; j < used; ++j) {
      Product& product = of_expert[chosen[j]];
      const auto from = is_cut ? row(x, t * used + j, n * used) : row(x, t, n);
      product.x.insert(product.x.end(), from.begin(), from.end());
      product.places.push_back(t * used + j);
    }
  }
  for (std::size_t e = 0; e < of_expert.size(); ++e) {
    of_expert[e].w = w.part(e * n_rows, n_rows);
    if (!bias.empty()) of_expert[e].bias = row(bias, e, spec.n_experts);
  }
  std::erase_if(of_expert, [](const Product& product) { return product.places.empty(); });
  return of_expert;
}

void Interpreter::add_updates(const PackedMatrix& w, std::span<const float> adapters,
                              std::span<const float> x, std::span<float> y) const {
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    const LowRankUpdate* const update = model_.adapters()[i]->of(w);
    if (update == nullptr || adapters[i] == 0) continue;
    const std::size_t n = x.size() / w.n_cols();
    std::vector<float> low_rank(n * update->rank());
    matmul(update->a, Compute::kF32, x, low_rank);
    scale(low_rank, update->factor(adapters[i]));
    std::vector<float> added(y.size());
    matmul(update->b, Compute::kF32, low_rank, added);
    add(added, y);
  }
}

void Interpreter::mix(int layer, std::span<const float> router, std::span<const float> x,
                      std::span<float> y) const {
  const FfnSpec& spec = ffn(layer);
  const std::size_t n = router.size() / spec.n_experts;
  const std::size_t used = spec.n_used;
  std::vector<std::uint32_t> chosen(used);
  std::vector<float> weights(used);
  for (std::size_t t = 0; t < n; ++t) {
    route(spec, row(router, t, n), vector(kExpertBias, layer), chosen, weights);
    for (std::size_t j = 0; j < used; ++j)
      axpy(weights[j], row(x, t * used + j, n * used), row(y, t, n));
  }
}

void Interpreter::embed(const Tap& tap, int layer, std::span<const TokenId> tokens,
                        std::span<float> y) const {
  const PackedMatrix& table = *matrix(tap, layer);
  const float factor = tap.name == "embd" ? model_.config().embedding_scale
                                          : input_factors(model_.config()).embedding;
  std::vector<std::byte> bytes(row_bytes(table.type(), table.n_cols()));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    table.extract_row(static_cast<std::size_t>(tokens[t]), bytes);
    contract::dequantize_row(table.type(), bytes, row(y, t, tokens.size()));
    scale(row(y, t, tokens.size()), factor);
  }
}

void Interpreter::rotate(const Tap& tap, int layer, std::span<const std::size_t> positions,
                         std::span<float> x) const {
  const HyperParameters& config = model_.config();
  const AttentionSpec& spec = config.attention(static_cast<std::size_t>(layer));
  const Rope& angles = model_.rope(static_cast<std::size_t>(layer));
  const std::span<const float> norm = vector(tap.weight, layer);
  std::vector<float> cos(angles.pairs());
  std::vector<float> sin(angles.pairs());
  for (std::size_t t = 0; t < positions.size(); ++t) {
    const std::span<float> heads = row(x, t, positions.size());
    const auto norm_if = [&](bool is_place) {
      if (!norm.empty() && is_place) norm_heads(heads, norm, config.norm_eps);
    };
    norm_if(!spec.rotates_first);
    angles.angles(positions[t], cos, sin);
    rope(heads, spec.head_dim, cos, sin);
    norm_if(spec.rotates_first);
    if (tap.name == "q_rope") scale(heads, angles.query_scale(positions[t]));
  }
}

void Interpreter::attend(const Tap& tap, int layer, const OpInputs& in, std::span<float> y) const {
  const AttentionSpec& spec = model_.config().attention(static_cast<std::size_t>(layer));
  const std::size_t n = in.positions.size();
  const std::span<const float> sinks = vector(tap.weight, layer);
  for (std::size_t t = 0; t < n; ++t) {
    for (std::size_t head = 0; head < spec.n_heads; ++head) {
      reference::attend(
          row(row(in.taps[0], t, n), head, spec.n_heads), {spec.scale, spec.score_cap}, *in.cache,
          in.cache_layer, head / spec.heads_per_kv(), in.positions[t], spec.window,
          sinks.empty() ? nullptr : &sinks[head], row(row(y, t, n), head, spec.n_heads));
    }
  }
}

}  // namespace llm::reference
