// The definition of Gated DeltaNets and Mamba-2 against f64 (docs/numerics.md).

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "engine/forward/reference/delta_net.h"
#include "quant/numerics/delta_net.h"
#include "validate/selftest/definition_bound.h"
#include "validate/selftest/kernel_case.h"

namespace llm {
namespace {

constexpr double kEps = 1e-6;
constexpr std::size_t kTokens = 4;

/// Roundings that a term of a 16-lane sum of n goes through.
double lane_sums(std::size_t n) { return std::ceil(static_cast<double>(n) / 16) + 4; }

/// Relative error of a head of length 1: of the sum and eps, halved by the root; root, quotient and
/// two products.
double length_error(std::size_t n) { return ((lane_sums(n) + 2) / 2 + 4.1) * kU; }

/// x of length `length`.
std::vector<double> of_length(std::span<const float> x, double length) {
  double sum = kEps;
  for (const float value : x) sum += f64(value) * f64(value);
  std::vector<double> out;
  for (const float value : x) out.push_back(f64(value) / std::sqrt(sum) * length);
  return out;
}

/// What is computed of a value and what it may be off.
struct Near {
  double value;
  double bound;
};

Near exact_beta(float b) {
  const double value = 1 / (1 + std::exp(-f64(b)));
  return {value, (kExpError + 3.1 * kU) * value + kDenormal};
}

Near exact_decay(float a, float dt, float slope) {
  const double r = f64(a) + f64(dt);
  const double softplus = std::max(r, 0.0) + std::log1p(std::exp(-std::abs(r)));
  const double value = std::exp(softplus * f64(slope));
  // r, the exponential in the logarithm, the logarithm itself, the sum rounded to f32.
  const double off = kU * std::abs(r) + (kExpError + kU) * softplus + 0x1p-52;
  const double exponent = std::abs(f64(slope)) * (off + kU * softplus);
  return {value, 1.01 * (exponent + kExpError) * value + kDenormal};
}

CheckResult check_gates() {
  Bounded verdict("a DeltaNet's gates");
  for (int i = -1000; i <= 1000; ++i) {
    const float x = static_cast<float>(i) / 16;
    verdict.add(f64(contract::delta_beta(x)), exact_beta(x).value, exact_beta(x).bound, f64(x));
    for (const float dt : {0.0F, 0.7F, -3.0F}) {
      for (const float slope : {-0.02F, -1.0F, -16.0F}) {
        const Near exact = exact_decay(x, dt, slope);
        verdict.add(f64(contract::delta_decay(x, dt, slope)), exact.value, exact.bound, f64(x));
      }
    }
  }
  return verdict.result("-62.5 to 62.5");
}

CheckResult check_convolution(std::size_t width) {
  Bounded verdict("a convolution");
  for (const Values values : {Values::kPlain, Values::kOutliers, Values::kTiny, Values::kTies}) {
    const auto inputs = draw(values, 500 * width, 1);
    const auto weights = draw(Values::kPlain, 500 * width, 2);
    for (std::size_t c = 0; c < inputs.size(); c += width) {
      const auto x = std::span(inputs).subspan(c, width);
      const auto w = std::span(weights).subspan(c, width);
      double sum = 0;
      double magnitude = 0;
      for (std::size_t j = 0; j < width; ++j) {
        sum += f64(w[j]) * f64(x[j]);
        magnitude += std::abs(f64(w[j]) * f64(x[j]));
      }
      std::vector<float> bias;
      if (c / width % 2 == 1) bias.push_back(weights[c]);
      for (const float b : bias) {
        sum += f64(b);
        magnitude += std::abs(f64(b));
      }
      const double order = (static_cast<double>(width) + 1.1) * kU * magnitude;
      verdict.add(f64(reference::convolve(x, w, bias, false)), sum,
                  order + kDenormal * static_cast<double>(width), sum);
      if (std::abs(sum) > 80) continue;
      const double exact = sum / (1 + std::exp(-sum));
      // The derivative of silu is at most 1.1.
      verdict.add(f64(reference::convolve(x, w, bias, true)), exact,
                  1.1 * order + (kExpError + 3.1 * kU) * std::abs(exact) +
                      kDenormal * static_cast<double>(2 + width),
                  sum);
    }
  }
  return verdict.result(fmt::format("width {}", width));
}

CheckResult check_length(std::size_t n) {
  Bounded verdict("a head's length");
  for (const Values values : {Values::kPlain, Values::kOutliers, Values::kTiny, Values::kTies}) {
    for (const float factor : {1.0F, 0.3F}) {
      const auto x = draw(values, n, 5);
      std::vector<float> y = x;
      reference::unit_length(y, factor);
      const std::vector<double> exact = of_length(x, f64(factor));
      for (std::size_t i = 0; i < n; ++i)
        verdict.add(f64(y[i]), exact[i], length_error(n) * std::abs(exact[i]) + 2 * kDenormal,
                    f64(x[i]));
    }
  }
  return verdict.result(fmt::format("of {}", n));
}

/// Heads of length 1, gates, and a token after another through the states. What is compared of a
/// token begins with the state that the definition had before it, so that errors do not grow.
class RuleCheck {
 public:
  explicit RuleCheck(const DeltaNetSpec& spec)
      : spec_(spec),
        memory_((DeltaState::bytes(spec) + sizeof(Line) - 1) / sizeof(Line)),
        state_(spec, std::as_writable_bytes(std::span(memory_))) {}

  CheckResult run() {
    const auto dt = draw(Values::kPlain, spec_.n_v_heads, 3);
    std::vector<float> slope = draw(Values::kPlain, spec_.n_v_heads, 4);
    for (float& x : slope) x = -std::abs(x);
    for (std::uint32_t t = 0; t < kTokens; ++t) {
      const auto x = draw(t == 2 ? Values::kOutliers : Values::kPlain, spec_.channels(), 10 + t);
      const auto a = draw(Values::kPlain, spec_.n_v_heads, 20 + t);
      const auto b = draw(Values::kPlain, spec_.n_v_heads, 30 + t);
      const std::vector<double> before = states();
      std::vector<float> o(spec_.v_rows());
      reference::delta_rule(spec_, x, a, b, dt, slope, state_, o);
      for (std::size_t head = 0; head < spec_.n_v_heads; ++head)
        compare(head, x, exact_decay(a[head], dt[head], slope[head]), exact_beta(b[head]), before,
                o);
    }
    return verdict_.result(fmt::format("k_dim {}, v_dim {}, {} value heads of {} key heads",
                                       spec_.k_dim, spec_.v_dim, spec_.n_v_heads, spec_.n_k_heads));
  }

 private:
  std::size_t place(std::size_t head, std::size_t i, std::size_t c) const {
    return (head * spec_.k_dim + i) * spec_.v_dim + c;
  }

  std::vector<double> states() const {
    std::vector<double> out(spec_.n_v_heads * spec_.k_dim * spec_.v_dim);
    for (std::size_t head = 0; head < spec_.n_v_heads; ++head)
      for (std::size_t i = 0; i < spec_.k_dim; ++i)
        for (std::size_t c = 0; c < spec_.v_dim; ++c)
          out[place(head, i, c)] = f64(state_.at(head, i, c));
    return out;
  }

  void compare(std::size_t head, std::span<const float> x, Near decay, Near beta,
               const std::vector<double>& before, std::span<const float> o) {
    const std::size_t n = spec_.k_dim;
    // Each key head's value heads side by side, or as far apart as there are key heads.
    const std::size_t k_head =
        spec_.grouped ? head / (spec_.n_v_heads / spec_.n_k_heads) : head % spec_.n_k_heads;
    const auto q = of_length(x.subspan(k_head * n, n), 1 / std::sqrt(static_cast<double>(n)));
    const auto k = of_length(x.subspan(spec_.n_k_heads * n + k_head * n, n), 1);
    const double of_heads = length_error(n) + kU;  // and a query's factor
    const double of_sums = (lane_sums(n) + 1) * kU;
    const double of_decay = decay.bound / decay.value + kU;
    for (std::size_t c = 0; c < spec_.v_dim; ++c) {
      const double v = f64(x[2 * spec_.n_k_heads * n + head * spec_.v_dim + c]);
      double found = 0;
      double magnitude = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double product = k[i] * before[place(head, i, c)] * decay.value;
        found += product;
        magnitude += std::abs(product);
      }
      const double change = (v - found) * beta.value;
      const double most = beta.value * (std::abs(v) + magnitude);
      const double off = beta.value * (of_decay + of_heads + of_sums) * magnitude +
                         (beta.bound / beta.value + 3 * kU) * most;
      double seen = 0;
      double bound = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double kept = before[place(head, i, c)] * decay.value;
        const double added = std::abs(k[i]);
        const double size = std::abs(kept) + added * most;
        const double of_state =
            1.02 * (std::abs(kept) * of_decay + added * (off + of_heads * most) + kU * size);
        verdict_.add(f64(state_.at(head, i, c)), kept + k[i] * change, of_state + kDenormal,
                     static_cast<double>(i));
        seen += q[i] * (kept + k[i] * change);
        bound += std::abs(q[i]) * (of_state + (of_heads + of_sums) * size);
      }
      verdict_.add(f64(o[head * spec_.v_dim + c]), seen, 1.02 * bound + kDenormal,
                   static_cast<double>(c));
    }
  }

  Bounded verdict_{"the delta rule"};
  struct alignas(64) Line {
    float values[DeltaState::kColumns] = {};
  };
  const DeltaNetSpec& spec_;
  std::vector<Line> memory_;
  DeltaState state_;
};

/// One token after another through a column of a state of Mamba-2, each from the state that the
/// definition had.
CheckResult check_scan(std::size_t n) {
  Bounded verdict("the scan of Mamba-2");
  std::vector<float> state = draw(Values::kPlain, n, 3);
  for (std::uint32_t t = 0; t < 50; ++t) {
    const auto values = t % 3 == 2 ? Values::kOutliers : Values::kPlain;
    const auto k = draw(values, n, 10 + t);
    const auto q = draw(values, n, 100 + t);
    const float v = draw(values, 1, 200 + t)[0];
    const float decay = 0.5F + 0.01F * static_cast<float>(t);
    const float step = 0.03F * static_cast<float>(t + 1);
    const float past = t % 2 == 0 ? 1.5F : -0.3F;
    const std::vector<float> before = state;
    const float y = reference::scan(q, k, v, decay, step, past, state.data(), 1);
    double seen = f64(past) * f64(v);
    double bound = std::abs(seen) * kU;
    for (std::size_t i = 0; i < n; ++i) {
      const double kept = f64(before[i]) * f64(decay);
      const double added = f64(k[i]) * f64(v) * f64(step);
      const double off = kU * (2 * std::abs(kept) + 2 * std::abs(added));
      verdict.add(f64(state[i]), kept + added, 1.02 * off + kDenormal, static_cast<double>(i));
      seen += f64(q[i]) * (kept + added);
      bound += std::abs(f64(q[i])) *
               (off + (lane_sums(n) + 2) * kU * (std::abs(kept) + std::abs(added)));
    }
    verdict.add(f64(y), seen, 1.02 * (bound + kU * std::abs(seen)) + kDenormal,
                static_cast<double>(t));
  }
  return verdict.result(fmt::format("of {}", n));
}

CheckResult check_steps() {
  Bounded verdict("time steps of Mamba-2");
  for (int i = -1000; i <= 1000; ++i) {
    const double x = static_cast<double>(i) / 16;
    const double exact = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    verdict.add(f64(contract::delta_step(static_cast<float>(x), 0.0F)), exact,
                (kExpError + 2 * kU) * exact + 0x1p-52, x);
  }
  return verdict.result("-62.5 to 62.5");
}

}  // namespace

std::vector<CheckResult> check_definition_of_delta_net(const DeltaNetSpec& spec) {
  if (spec.is_mamba)
    return {check_steps(), check_convolution(spec.conv_width), check_scan(spec.k_dim)};
  return {check_gates(), check_convolution(spec.conv_width), check_length(spec.k_dim),
          RuleCheck(spec).run()};
}

}  // namespace llm
