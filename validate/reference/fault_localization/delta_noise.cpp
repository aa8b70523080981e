#include <array>
#include <cmath>
#include <span>

#include "quant/numerics/delta_net.h"
#include "validate/reference/fault_localization/ideal_ops.h"

namespace llm {
namespace {

/// Roundings of an element of a state that later ones do not make small, and of the head's q and k.
constexpr double kOfState = 32;

/// x of length 1, times `factor`.
std::vector<double> unit(std::span<const float> x, double factor) {
  const double s = factor / std::sqrt(energy_of(x) + static_cast<double>(contract::kDeltaEps));
  std::vector<double> out;
  for (const float value : x) out.push_back(static_cast<double>(value) * s);
  return out;
}

/// The same of Mamba-2. @param change  v times the step
double terms_of_scan(std::span<const float> q, std::span<const float> k, double change,
                     double decay, std::span<double> state) {
  double terms = 0;
  for (std::size_t i = 0; i < k.size(); ++i) {
    state[i] = state[i] * decay + static_cast<double>(k[i]) * change;
    const double term = static_cast<double>(q[i]) * state[i];
    terms += term * term;
  }
  return terms;
}

/// A token through a column of a head's state. @return sum of the squares of what o adds up
double terms_of(std::span<const double> q, std::span<const double> k, double v, double decay,
                double beta, std::span<double> state) {
  double found = 0;
  for (std::size_t i = 0; i < k.size(); ++i) found += k[i] * (state[i] *= decay);
  double terms = 0;
  for (std::size_t i = 0; i < k.size(); ++i) {
    state[i] += k[i] * (v - found) * beta;
    terms += q[i] * state[i] * q[i] * state[i];
  }
  return terms;
}

}  // namespace

Result<std::optional<std::vector<double>>> delta_noise(const Replay& replay, const Dump& inputs,
                                                       int layer, const Tap& tap, TokenRows rows,
                                                       const TapMatrix& y) {
  std::array<TapMatrix, 3> in;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (tap.inputs[i].empty()) continue;
    const auto from = input_of(tap, layer, replay.config(), i);
    LLM_TRY(auto values, engine_order_tap(inputs, from->layer, from->row->name, replay.config()));
    if (!values) return std::optional<std::vector<double>>();
    in[i] = *std::move(values);
  }
  const auto& [x, b, c_of_delta] = in;
  const TapMatrix& a = tap.op == TapOp::kScan ? b : c_of_delta;
  const DeltaNetSpec& spec = *replay.config().layers[static_cast<std::size_t>(layer)].delta_net();
  const auto dt = replay.definition().vector(tap.bias, layer);
  const auto slope = replay.definition().vector(tap.weight, layer);
  const double roundings = static_cast<double>(spec.k_dim) / contract::kLanes + kOfState;
  std::vector<double> states(spec.v_rows() * spec.k_dim);
  std::vector<double> noise;
  for (std::size_t t = 0; t < x.rows; ++t) {
    double terms = 0;
    for (std::size_t head = 0; head < spec.n_v_heads; ++head) {
      const std::size_t at = spec.k_head_of(head) * spec.k_dim;
      if (spec.is_mamba) {
        const float kept = contract::delta_decay(a.row(t)[head], dt[head], slope[head]);
        const float step = contract::delta_step(a.row(t)[head], dt[head]);
        const double past = static_cast<double>(replay.definition().vector("ssm_d", layer)[head]);
        for (std::size_t c = head * spec.v_dim; c < (head + 1) * spec.v_dim; ++c) {
          const double v = static_cast<double>(x.row(t)[spec.first_v() + c]);
          terms += v * past * v * past +
                   terms_of_scan(x.row(t).subspan(spec.first_q() + at, spec.k_dim),
                                 x.row(t).subspan(spec.first_k() + at, spec.k_dim),
                                 v * static_cast<double>(step), static_cast<double>(kept),
                                 std::span(states).subspan(c * spec.k_dim, spec.k_dim));
        }
        continue;
      }
      const auto q = unit(x.row(t).subspan(at, spec.k_dim), 1 / std::sqrt(double(spec.k_dim)));
      const auto k = unit(x.row(t).subspan(spec.k_rows() + at, spec.k_dim), 1);
      const float decay = contract::delta_decay(a.row(t)[head], dt[head], slope[head]);
      const float beta = contract::delta_beta(b.row(t)[head]);
      for (std::size_t c = head * spec.v_dim; c < (head + 1) * spec.v_dim; ++c)
        terms += terms_of(q, k, x.row(t)[2 * spec.k_rows() + c], decay, beta,
                          std::span(states).subspan(c * spec.k_dim, spec.k_dim));
    }
    noise.push_back(kDeviations * kDeviations * kUnit * kUnit / 3 * roundings * terms);
  }
  std::vector<double> out;
  for (std::size_t i = 0; i < y.rows; ++i)
    out.push_back(noise[rows.empty() ? i : rows[i]] / energy_of(y.row(i)));
  return std::optional(std::move(out));
}

}  // namespace llm
