#include "validate/reference/fault_localization/ideal_ops.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "quant/formats/dequantize.h"

namespace llm {
namespace {

/// Weights that share a scale and a minimum, at most (quant/formats/block_formats.h).
constexpr std::size_t kSharedScale = 32;

/// @param out  rows of w.n_rows() at the product's places
void ideal_product(const reference::Product& product, ActivationFormat format, double divisor,
                   std::span<float> out) {
  const PackedMatrix& w = product.w;
  const std::size_t n = w.n_cols();
  std::vector<RoundedRow> rounded;
  for (std::size_t t = 0; t < product.places.size(); ++t)
    rounded.push_back(round_activations(format, product.row(t)));
  std::vector<float> stored(n);
  for (std::size_t r = 0; r < w.n_rows(); ++r) {
    read_row(w, r, stored);
    const std::vector<double> weights(stored.begin(), stored.end());
    const double added = product.bias.empty() ? 0 : static_cast<double>(product.bias[r]);
    for (std::size_t t = 0; t < rounded.size(); ++t)
      out[product.places[t] * w.n_rows() + r] =
          static_cast<float>((dot(weights.data(), rounded[t].values.data(), n) + added) / divisor);
  }
}

/// The energy of what f32 chains cost each row of a product.
std::vector<double> noise_energy(const reference::Product& product, ActivationFormat format) {
  const PackedMatrix& w = product.w;
  const std::size_t n = w.n_cols();
  const std::size_t shared = format == ActivationFormat::kF32 ? 1 : kSharedScale;
  std::vector<double> column_energy(n);  // sum over outputs of squared terms of x = 1
  std::vector<float> weights(n);
  for (std::size_t r = 0; r < w.n_rows(); ++r) {
    read_row(w, r, weights);
    for (std::size_t begin = 0; begin < n; begin += shared) {
      double most = 0;
      for (const float v : std::span(weights).subspan(begin, shared))
        most = std::max(most, std::abs(static_cast<double>(v)));
      for (std::size_t k = begin; k < begin + shared; ++k) column_energy[k] += most * most;
    }
  }
  std::vector<double> out;
  for (std::size_t t = 0; t < product.places.size(); ++t) {
    double terms = 0;
    for (std::size_t k = 0; k < n; ++k) {
      const auto value = static_cast<double>(product.row(t)[k]);
      terms += value * value * column_energy[k];
    }
    out.push_back(kDeviations * kDeviations * kUnit * kUnit / 3 * static_cast<double>(n) * terms);
  }
  return out;
}

template <typename Block>
std::string block_fault(std::span<const float> x) {
  for (std::size_t begin = 0; begin < x.size(); begin += Block::kWeights) {
    const auto part = x.subspan(begin).template first<Block::kWeights>();
    Block block;
    quantize_block(part, block);
    const RoundedGroup rule = round_group(part);
    const std::size_t b = begin / Block::kWeights;
    if (block.d != rule.step)
      return fmt::format("block {}: scale {}, need amax / 127 = {}", b, block.d, rule.step);
    for (std::size_t j = 0; j < Block::kWeights; ++j) {
      if (block.qs[j] == rule.codes[j]) continue;
      return fmt::format("block {}, element {}: {} became {}, need {}", b, j, part[j], block.qs[j],
                         rule.codes[j]);
    }
  }
  return {};
}

}  // namespace

void read_row(const PackedMatrix& w, std::size_t r, std::span<float> out) {
  std::vector<std::byte> bytes(row_bytes(w.type(), w.n_cols()));
  w.extract_row(r, bytes);
  contract::dequantize_row(w.type(), bytes, out);
  if (!w.has_scales()) return;
  for (float& weight : out) weight *= w.scale_of(r);
}

double dot(const double* x, const double* y, std::size_t n) {
  double lanes[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::size_t l = 0; l < 8; ++l) lanes[l] += x[i + l] * y[i + l];
  for (; i < n; ++i) lanes[0] += x[i] * y[i];
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

double energy_of(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return sum;
}

std::vector<double> product_noise(std::span<const reference::Product> products,
                                  ActivationFormat format, const TapMatrix& y, double divisor) {
  std::vector<double> out(y.rows);
  for (const reference::Product& product : products) {
    const std::size_t of_row = y.features / product.w.n_rows();
    const std::vector<double> noise = noise_energy(product, format);
    for (std::size_t i = 0; i < noise.size(); ++i) out[product.places[i] / of_row] += noise[i];
  }
  for (std::size_t t = 0; t < y.rows; ++t) {
    const double energy = energy_of(y.row(t));
    out[t] = energy > 0 ? out[t] / (divisor * divisor * energy) : 0;
  }
  return out;
}

RoundedGroup round_group(std::span<const float> x) {
  float most = 0;
  for (const float value : x) most = std::max(most, std::abs(value));
  const float inverse = 127.0F / most;
  const bool vanishes = !std::isfinite(inverse);  // zeros, and denormals nearly so
  RoundedGroup out{.codes = {}, .step = vanishes ? 0 : most / 127.0F};
  for (const float value : x)
    out.codes.push_back(vanishes ? 0 : static_cast<double>(std::nearbyint(value * inverse)));
  return out;
}

std::string quantization_fault(ActivationFormat format, std::span<const float> x) {
  if (format == ActivationFormat::kQ8_K) return block_fault<BlockQ8_K>(x);
  if (format == ActivationFormat::kQ8_32) return block_fault<BlockQ8_32>(x);
  return {};
}

RoundedRow round_activations(ActivationFormat format, std::span<const float> x) {
  const std::size_t n = activation_block_size(format);
  RoundedRow out;
  for (std::size_t begin = 0; begin < x.size(); begin += n) {
    const RoundedGroup group = round_group(x.subspan(begin, n));
    out.steps.push_back(static_cast<double>(group.step));
    for (const double code : group.codes) out.values.push_back(code * out.steps.back());
  }
  return out;
}

double round_to_half(float x) {
  constexpr int kDigits = 11;
  constexpr int kLeastExponent = -24;  // of the smallest denormal
  constexpr double kOverflow = 65520;
  const double value = static_cast<double>(x);
  if (!std::isfinite(value) || value == 0) return value;
  if (std::abs(value) >= kOverflow)
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  const int step = std::max(std::ilogb(value) - (kDigits - 1), kLeastExponent);
  return std::ldexp(std::nearbyint(std::ldexp(value, -step)), step);
}

Result<std::optional<IdealOutput>> ideal_output(const Replay& replay, const Dump& inputs, int layer,
                                                std::string_view tap, TokenRows rows) {
  std::optional<IdealOutput> none;
  const Tap& op = *TapFlow(replay.config()).find(layer, tap);
  const auto from = input_of(op, layer, replay.config());
  const auto format = replay.product_format(layer, tap);
  const bool is_attention = op.op == TapOp::kAttention;
  const bool rounds = format && *format != ActivationFormat::kF32;
  if (!from || (!is_attention && !rounds)) return none;
  const auto read = [&](const InLayer<Tap>& at) {
    return engine_order_tap(inputs, at.layer, at.row->name, replay.config());
  };
  LLM_TRY(auto x, read(*from));
  if (!x) return none;
  const TapMatrix selected = select_rows(*std::move(x), rows);
  if (!is_attention) {
    LLM_TRY(const auto products, replay.products(inputs, layer, op, selected, rows));
    if (!products) return none;
    const std::size_t width = op.width.of(replay.config(), layer);
    IdealOutput out;
    out.output = {selected.rows, width, std::vector<float>(selected.rows * width)};
    const auto divisor = static_cast<double>(replay.definition().divisor(op));
    for (const reference::Product& product : *products)
      ideal_product(product, *format, divisor, out.output.values);
    if (const auto cap = static_cast<double>(replay.definition().cap(op)); cap > 0)
      for (float& y : out.output.values)
        y = static_cast<float>(cap * std::tanh(static_cast<double>(y) / cap));
    return std::optional(std::move(out));
  }
  LLM_TRY(const auto k, read(*input_of(op, layer, replay.config(), 1)));
  LLM_TRY(const auto v, read(*input_of(op, layer, replay.config(), 2)));
  if (!k || !v) return none;
  const AttentionSpec& spec = replay.config().attention(static_cast<std::size_t>(layer));
  return std::optional(ideal_attention(spec, replay.kv(), selected, *k, *v, rows,
                                       replay.definition().vector(op.weight, layer)));
}

}  // namespace llm
