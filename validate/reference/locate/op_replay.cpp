#include "validate/reference/locate/op_replay.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/float_environment.h"
#include "engine/forward/kv_cache.h"
#include "engine/forward/reference/ops.h"
#include "engine/model/tensor_roles.h"
#include "quant/formats/dequantize.h"
#include "validate/reference/diff/layer_diff.h"

namespace llm {
namespace {

constexpr int kGlobal = ProbeSink::kGlobal;

static_assert(std::ranges::all_of(kTaps, [](const Tap& tap) {
  // By index: with sanitizers g++ 12 takes no comparison of a pointer for a constant.
  return std::ranges::all_of(std::array{tap.weight, tap.bias}, [&](std::string_view role) {
    const std::size_t i = role_index(role);
    return role.empty() || (i < kTensorRoles.size() && kTensorRoles[i].per_layer == tap.per_layer);
  });
}));

TapMatrix shaped(std::size_t rows, std::size_t features) {
  return TapMatrix{rows, features, std::vector<float>(rows * features)};
}

std::span<float> row(TapMatrix& m, std::size_t r) {
  return std::span(m.values).subspan(r * m.features, m.features);
}
std::span<const float> row(const TapMatrix& m, std::size_t r) {
  return std::span(m.values).subspan(r * m.features, m.features);
}

TapMatrix sum_of(const TapMatrix& x, const TapMatrix& y) {
  TapMatrix out = x;
  reference::add(y.values, out.values);
  return out;
}

template <typename Block>
std::string block_fault(std::span<const float> x) {
  for (std::size_t begin = 0; begin + Block::kWeights <= x.size(); begin += Block::kWeights) {
    const auto part = x.subspan(begin).template first<Block::kWeights>();
    Block block;
    quantize_block(part, block);
    double amax = 0;
    for (const float v : part) amax = std::max(amax, static_cast<double>(std::abs(v)));
    const double d = amax / 127;
    if (amax < 0x1p-100) continue;  // the rule has no such promise where f32 has fewer digits
    if (!(std::abs(static_cast<double>(block.d) - d) <= d * 0x1p-20)) {
      return fmt::format("block {}: scale {}, need amax / 127 = {}", begin / Block::kWeights,
                         block.d, d);
    }
    for (std::size_t j = 0; j < Block::kWeights; ++j) {
      const double back = static_cast<double>(block.d) * block.qs[j];
      if (std::abs(back - static_cast<double>(part[j])) <= d * (0.5 + 0x1p-12)) continue;
      return fmt::format("block {}, element {}: {} became {}, more than half a step ({}) away",
                         begin / Block::kWeights, j, part[j], back, d / 2);
    }
  }
  return {};
}

}  // namespace

TapMatrix select_rows(TapMatrix matrix, TokenRows rows) {
  if (rows.empty()) return matrix;
  TapMatrix out = shaped(rows.size(), matrix.features);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::ranges::copy(row(std::as_const(matrix), rows[i]), row(out, i).begin());
  return out;
}

Result<std::optional<TapMatrix>> engine_order_tap(const Dump& dump, int layer, std::string_view tap,
                                                  const HyperParameters& config) {
  std::optional<TapMatrix> none;
  if (!dump.has(layer, tap)) return none;
  LLM_TRY(TapMatrix out, dump.tap(layer, tap));
  const Tap* row = find_tap(layer, tap);
  if (row != nullptr && out.features != row->width.of(config)) {
    return Error{.code = ErrorCode::kMalformed,
                 .field = tap_label(layer, tap),
                 .message = fmt::format("found shape [{}, {}], need [{}, {}] for this model",
                                        out.rows, out.features, out.rows, row->width.of(config))};
  }
  const bool has_heads = row != nullptr && row->layout == TapLayout::kRopeHeads;
  if (has_heads && dump.meta().qk_layout == "half") {
    half_to_interleaved(out, config.head_dim, config.rope_dims);
  }
  return std::optional<TapMatrix>(std::move(out));
}

Replay::Replay(std::shared_ptr<const Model> model, KvType kv) : model_(std::move(model)), kv_(kv) {}

const PackedMatrix* Replay::matrix(int layer, std::string_view tap) const {
  const Tap* row = find_tap(layer, tap);
  if (row == nullptr || row->weight.empty()) return nullptr;
  const TensorRole* role = find_role(row->weight);
  if (!role->is_matrix()) return nullptr;
  const ModelWeights& weights = model_->weights();
  return tap == "logits" ? &weights.output() : &role->matrix.of(weights, layer);
}

std::span<const float> Replay::vector(int layer, std::string_view role) const {
  if (role.empty()) return {};
  return find_role(role)->vector.of(model_->weights(), layer).span();
}

std::string Replay::weight_type(int layer, std::string_view tap) const {
  const PackedMatrix* w = matrix(layer, tap);
  return w == nullptr ? std::string() : std::string(block_traits(w->type()).name);
}

std::optional<ActivationFormat> Replay::product_format(int layer, std::string_view tap) const {
  const PackedMatrix* w = tap == "embd" ? nullptr : matrix(layer, tap);
  if (w == nullptr) return std::nullopt;
  return model_->compute() == Compute::kInt8 ? activation_format(w->type())
                                             : ActivationFormat::kF32;
}

std::optional<std::pair<int, std::string_view>> Replay::input_of(int layer, std::string_view tap,
                                                                 std::size_t n_layers) {
  using Input = std::pair<int, std::string_view>;
  if (layer == kGlobal) {
    if (tap == "result_norm") return Input(static_cast<int>(n_layers) - 1, "l_out");
    if (tap == "logits") return Input(kGlobal, "result_norm");
    return std::nullopt;
  }
  const Input before = layer == 0 ? Input(kGlobal, "embd") : Input(layer - 1, "l_out");
  if (tap == "attn_norm" || tap == "ffn_inp") return before;
  if (tap == "q" || tap == "k" || tap == "v") return Input(layer, "attn_norm");
  if (tap == "q_rope") return Input(layer, "q");
  if (tap == "k_rope") return Input(layer, "k");
  if (tap == "attn_ctx") return Input(layer, "q_rope");
  if (tap == "attn_out") return Input(layer, "attn_ctx");
  if (tap == "ffn_norm" || tap == "l_out") return Input(layer, "ffn_inp");
  if (tap == "gate" || tap == "up") return Input(layer, "ffn_norm");
  if (tap == "ffn_act") return Input(layer, "gate");
  if (tap == "ffn_out") return Input(layer, "ffn_act");
  return std::nullopt;
}

Result<std::optional<TapMatrix>> Replay::run(const Dump& inputs, int layer, std::string_view tap,
                                             TokenRows rows) const {
  const FloatEnvironment contract;
  const std::optional<TapMatrix> none;
  if (tap == "embd") {
    std::vector<std::int32_t> tokens(inputs.tokens().begin(), inputs.tokens().end());
    if (!rows.empty()) {
      tokens.clear();
      for (const std::size_t t : rows) tokens.push_back(inputs.tokens()[t]);
    }
    return std::optional(embed(tokens));
  }
  const auto from = input_of(layer, tap, config().n_layers);
  if (!from) return none;
  const auto read = [&](int at_layer, std::string_view name) {
    return engine_order_tap(inputs, at_layer, name, config());
  };
  LLM_TRY(std::optional<TapMatrix> x, read(from->first, from->second));
  if (!x) return none;
  x = select_rows(std::move(*x), rows);
  const Tap& op = *find_tap(layer, tap);
  if (const PackedMatrix* w = matrix(layer, tap)) {
    TapMatrix y = shaped(x->rows, w->n_rows());
    reference::matmul(*w, model_->compute(), x->values, y.values);
    const std::span<const float> bias = vector(layer, op.bias);
    for (std::size_t t = 0; t < y.rows && !bias.empty(); ++t) reference::add(bias, row(y, t));
    return std::optional(std::move(y));
  }
  if (op.op == TapOp::kNorm) return std::optional(norm(*x, vector(layer, op.weight)));
  if (op.op == TapOp::kRope)
    return std::optional(rotate(*std::move(x), vector(layer, op.weight), rows));
  const std::string_view second = tap == "ffn_inp"   ? "attn_out"
                                  : tap == "l_out"   ? "ffn_out"
                                  : tap == "ffn_act" ? "up"
                                                     : "k_rope";
  LLM_TRY(std::optional<TapMatrix> y, read(layer, second));
  if (!y) return none;
  if (tap == "attn_ctx") {
    LLM_TRY(const std::optional<TapMatrix> v, read(layer, "v"));
    if (!v) return none;
    LLM_TRY(TapMatrix context, attend(*x, *y, *v, rows));
    return std::optional(std::move(context));
  }
  y = select_rows(std::move(*y), rows);
  if (tap != "ffn_act") return std::optional(sum_of(*x, *y));
  TapMatrix out = shaped(x->rows, x->features);
  reference::silu_mul(x->values, y->values, out.values);
  return std::optional(std::move(out));
}

TapMatrix Replay::embed(std::span<const std::int32_t> tokens) const {
  const PackedMatrix& table = model_->weights().token_embd;
  TapMatrix out = shaped(tokens.size(), table.n_cols());
  std::vector<std::byte> bytes(row_bytes(table.type(), table.n_cols()));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    table.extract_row(static_cast<std::size_t>(tokens[t]), bytes);
    contract::dequantize_row(table.type(), bytes, row(out, t));
  }
  return out;
}

TapMatrix Replay::norm(const TapMatrix& x, std::span<const float> weight) const {
  TapMatrix out = shaped(x.rows, x.features);
  for (std::size_t t = 0; t < x.rows; ++t)
    reference::rms_norm(row(x, t), weight, config().norm_eps, row(out, t));
  return out;
}

TapMatrix Replay::rotate(TapMatrix x, std::span<const float> norm, TokenRows rows) const {
  const Rope& rope = model_->rope();
  std::vector<float> cos(rope.pairs());
  std::vector<float> sin(rope.pairs());
  for (std::size_t t = 0; t < x.rows; ++t) {
    rope.angles(rows.empty() ? t : rows[t], cos, sin);
    if (!norm.empty()) reference::norm_heads(row(x, t), norm, config().norm_eps);
    reference::rope(row(x, t), config().head_dim, cos, sin);
  }
  return x;
}

Result<TapMatrix> Replay::attend(const TapMatrix& q, const TapMatrix& k, const TapMatrix& v,
                                 TokenRows rows) const {
  const std::size_t dim = config().head_dim;
  HyperParameters one_layer = config();
  one_layer.n_layers = 1;
  LLM_TRY(auto pool, KvPool::create(one_layer, KvPool::pages_for(k.rows), kv_));
  KvCache cache(std::move(pool));
  LLM_CHECK(cache.reserve(0, k.rows));
  for (std::size_t t = 0; t < k.rows; ++t) cache.store(0, 0, t, row(k, t), row(v, t));
  const std::size_t heads_per_kv = config().n_heads / config().n_kv_heads;
  TapMatrix out = shaped(q.rows, q.features);
  for (std::size_t t = 0; t < q.rows; ++t) {
    for (std::size_t head = 0; head < config().n_heads; ++head)
      reference::attend(row(q, t).subspan(head * dim, dim), cache, 0, head / heads_per_kv,
                        rows.empty() ? t : rows[t], row(out, t).subspan(head * dim, dim));
  }
  return out;
}

std::string quantization_fault(ActivationFormat format, std::span<const float> x) {
  if (format == ActivationFormat::kQ8_K) return block_fault<BlockQ8_K>(x);
  if (format == ActivationFormat::kQ8_32) return block_fault<BlockQ8_32>(x);
  return {};
}

}  // namespace llm
