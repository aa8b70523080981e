#include "validate/locate/ideal_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "quant/formats/dequantize.h"

namespace llm {
namespace {

/// Half the distance of neighbouring f32 numbers around 1: what one rounding costs at most.
constexpr double kUnit = 0x1p-24;
/// Weights that share a scale and a minimum, at most (quant/formats/block_formats.h).
constexpr std::size_t kSharedScale = 32;
/// Standard deviations of rounding noise that count as noise.
constexpr double kDeviations = 6;

/// A product of doubles in eight chains, which a compiler keeps in registers.
double dot(const double* x, const double* y, std::size_t n) {
  double lanes[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::size_t l = 0; l < 8; ++l) lanes[l] += x[i + l] * y[i + l];
  for (; i < n; ++i) lanes[0] += x[i] * y[i];
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

/// @param bias  added to each row; may be empty
IdealOutput ideal_product(const PackedMatrix& w, std::span<const float> bias,
                          ActivationFormat format, const TapMatrix& x) {
  const std::size_t n = w.n_cols();
  std::vector<RoundedRow> rounded;
  for (std::size_t t = 0; t < x.rows; ++t)
    rounded.push_back(round_activations(format, std::span(x.values).subspan(t * n, n)));
  IdealOutput out;
  out.output = {x.rows, w.n_rows(), std::vector<float>(x.rows * w.n_rows())};
  std::vector<std::byte> bytes(row_bytes(w.type(), n));
  std::vector<float> stored(n);
  for (std::size_t r = 0; r < w.n_rows(); ++r) {
    w.extract_row(r, bytes);
    contract::dequantize_row(w.type(), bytes, stored);
    const std::vector<double> weights(stored.begin(), stored.end());
    for (std::size_t t = 0; t < x.rows; ++t) {
      const double added = bias.empty() ? 0 : static_cast<double>(bias[r]);
      out.output.values[t * w.n_rows() + r] =
          static_cast<float>(dot(weights.data(), rounded[t].values.data(), n) + added);
    }
  }
  return out;
}

/// One head of one token over the keys it sees.
struct Head {
  const double* keys;    ///< (n_keys, stride)
  const double* values;  ///< the same
  std::size_t stride;
  std::size_t n_keys;
  std::size_t dim;
};

/// Writes the context and returns the variance that evaluation in f32 adds to it: a score is off by
/// the roundings of its chain of `dim` steps, and of itself relative to the largest, which changes
/// its weight by as much, relatively.
double ideal_head(const Head& head, std::span<const float> q, std::span<float> context) {
  const double scale = 1 / std::sqrt(static_cast<double>(head.dim));
  const std::vector<double> query(q.begin(), q.end());
  std::vector<double> score(head.n_keys);
  std::vector<double> error(head.n_keys);
  for (std::size_t j = 0; j < head.n_keys; ++j) {
    const double* key = head.keys + j * head.stride;
    score[j] = scale * dot(query.data(), key, head.dim);
    double magnitude = 0;
    for (std::size_t d = 0; d < head.dim; ++d) magnitude += std::abs(query[d] * key[d]);
    error[j] = std::sqrt(static_cast<double>(head.dim)) * scale * magnitude + std::abs(score[j]);
  }
  const double most = *std::ranges::max_element(score);
  double sum = 0;
  for (double& s : score) sum += (s = std::exp(s - most));
  std::vector<double> mean(head.dim);
  for (std::size_t j = 0; j < head.n_keys; ++j)
    for (std::size_t d = 0; d < head.dim; ++d)
      mean[d] += score[j] / sum * head.values[j * head.stride + d];
  double variance = 0;
  for (std::size_t j = 0; j < head.n_keys; ++j) {
    double distance = 0;
    for (std::size_t d = 0; d < head.dim; ++d)
      distance += std::pow(head.values[j * head.stride + d] - mean[d], 2);
    const double weight = score[j] / sum * kUnit * (error[j] + std::abs(most));
    variance += weight * weight * distance;
  }
  for (std::size_t d = 0; d < head.dim; ++d) context[d] = static_cast<float>(mean[d]);
  return variance;
}

std::vector<double> as_cached(const TapMatrix& x, KvType kv) {
  std::vector<double> out(x.values.begin(), x.values.end());
  if (kv == KvType::kF16) std::ranges::transform(x.values, out.begin(), round_to_half);
  return out;
}

IdealOutput ideal_attention(const HyperParameters& config, KvType kv, const TapMatrix& q,
                            const TapMatrix& k, const TapMatrix& v, TokenRows rows) {
  const std::vector<double> keys = as_cached(k, kv);
  const std::vector<double> values = as_cached(v, kv);
  const std::size_t dim = config.head_dim;
  IdealOutput out;
  out.output = {q.rows, q.features, std::vector<float>(q.values.size())};
  for (std::size_t t = 0; t < q.rows; ++t) {
    const std::size_t position = rows.empty() ? t : rows[t];
    double variance = 0;
    double energy = 0;
    for (std::size_t h = 0; h < config.n_heads; ++h) {
      const std::size_t at = h / (config.n_heads / config.n_kv_heads) * dim;
      const std::span context = std::span(out.output.values).subspan(t * q.features + h * dim, dim);
      variance += ideal_head({&keys[at], &values[at], k.features, position + 1, dim},
                             std::span(q.values).subspan(t * q.features + h * dim, dim), context);
      for (const float c : context) energy += static_cast<double>(c) * static_cast<double>(c);
    }
    out.row_noise.push_back(energy > 0 ? kDeviations * kDeviations * variance / energy : 0);
  }
  return out;
}

}  // namespace

std::vector<double> product_noise(const PackedMatrix& w, ActivationFormat format,
                                  const TapMatrix& x, const TapMatrix& y) {
  const std::size_t n = w.n_cols();
  const std::size_t shared = format == ActivationFormat::kF32 ? 1 : kSharedScale;
  std::vector<double> column_energy(n);  // sum over outputs of squared terms of x = 1
  std::vector<std::byte> bytes(row_bytes(w.type(), n));
  std::vector<float> weights(n);
  for (std::size_t r = 0; r < w.n_rows(); ++r) {
    w.extract_row(r, bytes);
    contract::dequantize_row(w.type(), bytes, weights);
    for (std::size_t begin = 0; begin < n; begin += shared) {
      double most = 0;
      for (const float v : std::span(weights).subspan(begin, shared))
        most = std::max(most, std::abs(static_cast<double>(v)));
      for (std::size_t k = begin; k < begin + shared; ++k) column_energy[k] += most * most;
    }
  }
  std::vector<double> out;
  for (std::size_t t = 0; t < x.rows; ++t) {
    double terms = 0;
    for (std::size_t k = 0; k < n; ++k) {
      const auto value = static_cast<double>(x.values[t * n + k]);
      terms += value * value * column_energy[k];
    }
    double energy = 0;
    for (const float v : std::span(y.values).subspan(t * y.features, y.features))
      energy += static_cast<double>(v) * static_cast<double>(v);
    const double variance = kUnit * kUnit / 3 * static_cast<double>(n) * terms;
    out.push_back(energy > 0 ? kDeviations * kDeviations * variance / energy : 0);
  }
  return out;
}

RoundedRow round_activations(ActivationFormat format, std::span<const float> x) {
  const std::size_t n = activation_block_size(format);
  RoundedRow out;
  for (std::size_t begin = 0; begin < x.size(); begin += n) {
    const auto block = x.subspan(begin, n);
    float most = 0;
    for (const float value : block) most = std::max(most, std::abs(value));
    const float step = most / 127.0F;
    const float inverse = 127.0F / most;
    const bool vanishes = !std::isfinite(inverse);  // zeros, and denormals nearly so
    out.steps.push_back(vanishes ? 0 : static_cast<double>(step));
    for (const float value : block) {
      const float code = std::nearbyint(value * inverse);
      out.values.push_back(vanishes ? 0 : static_cast<double>(code) * out.steps.back());
    }
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
  const auto from = Replay::input_of(layer, tap, replay.config().n_layers);
  const auto format = replay.product_format(layer, tap);
  const bool is_attention = tap == "attn_ctx";
  const bool rounds = format && *format != ActivationFormat::kF32;
  if (!from || (!is_attention && !rounds)) return none;
  const auto read = [&](int at_layer, std::string_view name) {
    return engine_order_tap(inputs, at_layer, name, replay.config());
  };
  LLM_TRY(auto x, read(from->first, from->second));
  if (!x) return none;
  const TapMatrix selected = select_rows(*std::move(x), rows);
  if (!is_attention) {
    return std::optional(ideal_product(*replay.matrix(layer, tap),
                                       replay.vector(layer, find_tap(layer, tap)->bias), *format,
                                       selected));
  }
  LLM_TRY(const auto k, read(layer, "k_rope"));
  LLM_TRY(const auto v, read(layer, "v"));
  if (!k || !v) return none;
  return std::optional(ideal_attention(replay.config(), replay.kv(), selected, *k, *v, rows));
}

}  // namespace llm
