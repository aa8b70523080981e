#include "validate/selftest/definition_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "engine/forward/reference/ops.h"
#include "engine/forward/route.h"
#include "quant/formats/activations.h"
#include "quant/formats/half.h"
#include "quant/numerics/arithmetic.h"
#include "validate/reference/fault_localization/ideal_ops.h"
#include "validate/selftest/definition_bound.h"
#include "validate/selftest/kernel_case.h"

namespace llm {
namespace {

/// Every so many bit patterns of an f32 are tried; a prime, so that all digits vary.
constexpr std::uint32_t kStride = 100'003;
/// And of the numbers where exponentials are neither 0, 1 nor infinite: steps of a unit.
constexpr int kSteps = 512;

/// Calls use(x) for finite f32 of all magnitudes and both signs.
template <typename Use>
void over_all_floats(const Use& use) {
  for (std::uint64_t bits = 0; bits < 0x7F80'0000; bits += kStride) {
    use(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    use(-std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (int i = -110 * kSteps; i <= 110 * kSteps; ++i) use(static_cast<float>(i) / kSteps);
}

CheckResult check_exp() {
  Bounded verdict("exp");
  over_all_floats([&](float x) {
    const double exact = std::exp(f64(x));
    const float actual = contract::exp(x);
    if (exact > kLargest) {
      verdict.add(std::isinf(actual) || f64(actual) == kLargest ? 0 : 1, 0, 0.5, f64(x));
      return;
    }
    // A denormal result is rounded once more.
    const double ulp = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
    verdict.add(f64(actual), exact, exact < 0x1p-126 ? 1.6 * ulp : 1.1 * ulp, f64(x));
  });
  return verdict.result("all magnitudes");
}

/// An activation, and how far from it f32 may be, relative to it.
struct Exact {
  double value;
  double bound;
};
Exact exact_activation(Activation kind, double x, double up) {
  // exp(-z), 1 + exp, the quotient, the product with `up`.
  constexpr double kBound = kExpError + 3.1 * kU;
  const auto gated = [](double gate, double z, double through, double bound) {
    // Where exp(-z) is infinite in f32, with what z may be off, the result is a zero; the value
    // lies below 3e-37.
    return Exact{gate / (1 + std::exp(-z)) * through, std::exp(-z) > 0.999 * kLargest ? 1 : bound};
  };
  switch (kind) {
    case Activation::kSwiGlu:
      return gated(x, x, up, kBound);
    case Activation::kGeGluTanh: {
      // z has three roundings and those of two constants; exp(-z) makes of them z times as much.
      const double z = x * std::sqrt(8 / std::numbers::pi) * (1 + 0.044715 * x * x);
      return gated(x, z, up, kBound + 4.1 * kU * std::abs(z));
    }
    case Activation::kSwiGluOai: {
      const double gate = std::min(x, 7.0);
      const double z = 1.702 * gate;  // a rounded constant, and a rounding
      return gated(gate, z, std::clamp(up, -7.0, 7.0) + 1,
                   kBound + 2.1 * kU * std::abs(z) + 1.1 * kU);
    }
    case Activation::kSigmoid:
      return gated(1, x, up, kBound);
  }
  return {};
}

CheckResult check_activation(Activation kind, std::string_view name) {
  Bounded verdict{std::string(name)};
  over_all_floats([&](float x) {
    for (const float up : {1.0F, -1.7F, 9.0F}) {
      const Exact exact = exact_activation(kind, f64(x), f64(up));
      float y = 0;
      reference::activate(kind, {&x, 1}, {&up, 1}, {&y, 1});
      if (std::abs(exact.value) > kLargest) continue;
      verdict.add(f64(y), exact.value,
                  exact.bound * std::abs(exact.value) + kDenormal * (2 + std::abs(f64(up))),
                  f64(x));
    }
  });
  return verdict.result("all magnitudes");
}

/// Against the order of the logits, or of probabilities and biases, and weights in f64; half of the
/// logits are ties.
CheckResult check_routing(const HyperParameters& config, const FfnSpec& kind, bool has_bias) {
  const bool is_softmax = kind.router == Router::kSoftmax;
  Bounded verdict(fmt::format("routing{}{}{}", is_softmax ? "" : " by sigmoids",
                              is_softmax && has_bias ? " with a bias" : "",
                              kind.weights_add_up ? "" : ", weights not divided"));
  FfnSpec spec = kind;
  spec.experts_scale = 1.5F;
  const std::size_t experts = config.most(&LayerSpec::n_experts);
  const std::size_t n = std::max<std::size_t>(experts, 12);
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    const std::size_t k = experts > 0 ? config.most(&LayerSpec::n_ffn_used) : 1 + seed % n;
    std::vector<float> logits = draw(Values::kPlain, n, seed);
    for (std::size_t i = 0; i < n; i += 2) logits[i] = logits[i / 4 * 4];
    std::vector<std::uint32_t> chosen(k);
    std::vector<float> weights(k);
    // Multiples of a quarter, so that no rounding changes the order.
    std::vector<float> bias;
    if (has_bias)
      for (std::size_t i = 0; i < n; ++i)
        bias.push_back(0.25F * static_cast<float>((i / 4 * 7 + seed) % 9) - 1);
    route(spec, logits, bias, chosen, weights);
    std::vector<double> shares;
    std::vector<double> keys;
    double sum_of_all = 0;
    for (const float logit : logits) sum_of_all += std::exp(f64(logit));
    for (std::size_t i = 0; i < n; ++i) {
      const double e = std::exp(f64(logits[i]));
      shares.push_back(e / (is_softmax ? sum_of_all : 1 + e));
      keys.push_back(shares.back() + (has_bias ? f64(bias[i]) : 0));
    }
    std::vector<std::uint32_t> exact(n);
    std::iota(exact.begin(), exact.end(), 0U);
    std::ranges::stable_sort(exact, [&](auto a, auto b) { return keys[a] > keys[b]; });
    exact.resize(k);
    std::ranges::sort(exact);
    double sum = 0;
    for (const std::uint32_t id : exact) sum += shares[id];
    // exp of a rounded difference, at most n sums and the quotient.
    const double bound = static_cast<double>((kind.weights_add_up ? k : n) + 6) * 2 * kU;
    for (std::size_t j = 0; j < k; ++j) {
      verdict.add(chosen[j], exact[j], 0, static_cast<double>(j));
      const double weight = 1.5 * shares[exact[j]] / (kind.weights_add_up ? sum : 1);
      verdict.add(f64(weights[j]), weight, bound * weight + bound, f64(logits[exact[j]]));
    }
  }
  return verdict.result(fmt::format("{} logits, ties among them", n));
}

CheckResult check_norm(const HyperParameters& config) {
  Bounded verdict("RMSNorm");
  const double eps = f64(config.norm_eps);
  for (const std::size_t n : odd_sizes(config.d_model)) {
    for (const Values values :
         {Values::kPlain, Values::kOutliers, Values::kWide, Values::kTiny, Values::kTies}) {
      if (eps < 1e-20 && (values == Values::kTiny || values == Values::kWide)) continue;
      const auto x = draw(values, n, static_cast<std::uint32_t>(n));
      const auto weight = draw(Values::kOutliers, n, static_cast<std::uint32_t>(n) + 1);
      std::vector<float> y(n);
      reference::rms_norm(x, weight, config.norm_eps, y);
      double sum = 0;
      for (const float value : x) sum += f64(value) * f64(value);
      if (sum > kLargest / 2) continue;
      const double s = 1 / std::sqrt(sum / static_cast<double>(n) + eps);
      // A lane's sum, four pairwise ones, the mean and eps, halved by the root; root, quotient and
      // two products.
      const double sums = std::ceil(static_cast<double>(n) / 16) + 4 + 2;
      for (std::size_t i = 0; i < n; ++i) {
        const double exact = f64(x[i]) * s * f64(weight[i]);
        const double small = kDenormal * (1 + std::abs(f64(weight[i])));
        verdict.add(f64(y[i]), exact, (sums / 2 + 4.1) * kU * std::abs(exact) + small, f64(x[i]));
      }
    }
  }
  return verdict.result(fmt::format("n 1 .. 33, {}, eps {}", config.d_model, config.norm_eps));
}

CheckResult check_angles(const HyperParameters& config, const RopeSpec& spec, const Rope& rope,
                         std::span<const float> divisors) {
  Bounded verdict("RoPE's angles");
  std::vector<float> cos(rope.pairs());
  std::vector<float> sin(rope.pairs());
  for (const std::size_t position : {std::size_t{0}, std::size_t{1}, std::size_t{255},
                                     std::size_t{256}, std::size_t{2048}, config.context - 1}) {
    rope.angles(position, cos, sin);
    for (std::size_t i = 0; i < rope.pairs(); ++i) {
      // theta^(-2i / dims) by exp and log, where the engine takes pow.
      const double exponent = 2 * static_cast<double>(i) / static_cast<double>(spec.dims);
      const double plain = std::exp(-exponent * std::log(f64(spec.theta)));
      // Of a pair between YaRN's ends the slowed and the plain frequency by their distances from
      // them.
      const double slow = plain / f64(spec.scale);
      const double pair = static_cast<double>(i);
      const double frequency =
          !spec.yarn || pair >= spec.yarn->high ? slow
          : pair <= spec.yarn->low
              ? plain
              : (slow * (pair - spec.yarn->low) + plain * (spec.yarn->high - pair)) /
                    (spec.yarn->high - spec.yarn->low);
      const double angle =
          static_cast<double>(position) * frequency / (divisors.empty() ? 1.0 : f64(divisors[i]));
      const double most = std::exp2(std::ceil(std::log2(spec.magnitude)));
      const double bound = most * (0x1p-25 + angle * 0x1p-46);
      verdict.add(f64(cos[i]), spec.magnitude * std::cos(angle), bound, angle);
      verdict.add(f64(sin[i]), spec.magnitude * std::sin(angle), bound, angle);
    }
  }
  return verdict.result(fmt::format("{} pairs, theta {}, up to position {}", rope.pairs(),
                                    spec.theta, config.context - 1));
}

CheckResult check_rotation(std::size_t head_dim, const Rope& rope) {
  Bounded verdict("RoPE");
  std::vector<float> cos(rope.pairs());
  std::vector<float> sin(rope.pairs());
  for (const Values values : kAllValues) {
    if (values == Values::kHuge || values == Values::kSpecial) continue;
    rope.angles(3, cos, sin);
    const auto before = draw(values, 2 * head_dim, 3);
    std::vector<float> x = before;
    reference::rope(x, head_dim, cos, sin);
    for (std::size_t i = 0; i + 1 < x.size(); i += 2) {
      const std::size_t pair = i % head_dim / 2;
      const double x0 = f64(before[i]);
      const double x1 = f64(before[i + 1]);
      const double c = pair < rope.pairs() ? f64(cos[pair]) : 1;
      const double s = pair < rope.pairs() ? f64(sin[pair]) : 0;
      // A product rounded by itself, and an fma.
      const auto bound = [&](double product, double exact) {
        return 1.01 * kU * (std::abs(product) + std::abs(exact)) + kDenormal;
      };
      verdict.add(f64(x[i]), x0 * c - x1 * s, bound(x1 * s, x0 * c - x1 * s), x0);
      verdict.add(f64(x[i + 1]), x0 * s + x1 * c, bound(x1 * c, x0 * s + x1 * c), x1);
    }
  }
  return verdict.result(fmt::format("{} of {} dims rotate", 2 * rope.pairs(), head_dim));
}

/// Softmax over n keys in chunks of 256, then the weighted values.
void check_attention_case(const AttentionSpec& spec, std::size_t n, float query_factor,
                          Bounded& verdict) {
  const std::size_t dim = spec.head_dim;
  auto q = draw(Values::kPlain, dim, 1);
  for (float& x : q) x *= query_factor;
  const auto keys = draw(Values::kPlain, n * dim, 2);
  const auto values = draw(Values::kOutliers, n * dim, 3);
  const auto chunk = [&](std::size_t begin) {
    const std::size_t end = std::min(begin + contract::kAttentionChunk, n);
    return reference::attend_chunk(q, {spec.scale, spec.score_cap}, 0,
                                   std::span(keys).subspan(begin * dim, (end - begin) * dim),
                                   std::span(values).subspan(begin * dim, (end - begin) * dim));
  };
  reference::AttentionPartial sum = chunk(0);
  for (std::size_t begin = contract::kAttentionChunk; begin < n; begin += contract::kAttentionChunk)
    reference::merge(sum, chunk(begin));
  std::vector<float> context(dim);
  reference::finish(sum, context);

  std::vector<double> scores(n);
  double most = -std::numeric_limits<double>::infinity();
  double least = std::numeric_limits<double>::infinity();
  double score_error = 0;
  const double scale = f64(spec.scale);
  for (std::size_t j = 0; j < n; ++j) {
    double magnitude = 0;
    for (std::size_t d = 0; d < dim; ++d) {
      const double product = f64(q[d]) * f64(keys[j * dim + d]);
      scores[j] += scale * product;
      magnitude += scale * std::abs(product);
    }
    // A cap takes scores nearer to each other, and is itself off by a few roundings of its height.
    const double cap = f64(spec.score_cap);
    if (cap > 0) scores[j] = cap * std::tanh(scores[j] / cap);
    most = std::max(most, scores[j]);
    least = std::min(least, scores[j]);
    score_error =
        std::max(score_error, (static_cast<double>(dim) + 2) * kU * magnitude + 8 * kU * cap);
  }
  double total = 0;
  for (double& s : scores) total += s = std::exp(s - most);
  // Each e_j: its score's error, a difference and an exp, and the same again in a merge. Twice,
  // above and below the quotient; then the sums.
  const double weight_error = 2 * score_error + 2 * (kExpError + kU * (most - least));
  const auto keys_summed = static_cast<double>(n);
  const double relative = 2 * weight_error + (keys_summed + keys_summed / 16 + 10) * kU;
  for (std::size_t d = 0; d < dim; ++d) {
    double exact = 0;
    double magnitude = 0;
    for (std::size_t j = 0; j < n; ++j) {
      exact += scores[j] / total * f64(values[j * dim + d]);
      magnitude += scores[j] / total * std::abs(f64(values[j * dim + d]));
    }
    verdict.add(f64(context[d]), exact, relative * magnitude + keys_summed * 1e3 * kDenormal,
                static_cast<double>(d));
  }
}

CheckResult check_attention(const AttentionSpec& spec) {
  Bounded verdict("attention");
  for (const std::size_t n : {1U, 2U, 17U, 255U, 256U, 257U, 600U}) {
    for (const float factor : {0.1F, 4.0F, 60.0F}) check_attention_case(spec, n, factor, verdict);
  }
  return verdict.result(fmt::format("head_dim {}, 1 .. 600 keys", spec.head_dim));
}

CheckResult check_half() {
  Bounded verdict("rounding to f16");
  const auto check = [&](float x) {
    const double actual = f64(f16_to_f32(f32_to_f16(x)));
    verdict.add_exact(actual, round_to_half(x), f64(x));
  };
  over_all_floats(check);
  // Every f16 from its fields, and the ties between it and the next.
  for (std::uint32_t half = 0; half < 0x7C00; ++half) {
    const auto exponent = static_cast<int>(half >> 10);
    const double fraction = half & 0x3FF;
    const double exact =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    const float read = f16_to_f32(static_cast<std::uint16_t>(half));
    verdict.add(f64(read), exact, 0x1p-60, half);
    check(read);
    check(std::bit_cast<float>(std::bit_cast<std::uint32_t>(read) + 0x1000));
  }
  return verdict.result("all magnitudes, every f16, every tie; exact");
}

CheckResult check_activations() {
  Tally tally{.of = "blocks"};
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    for (const Values values : kAllValues) {
      if (values == Values::kSpecial) continue;
      const auto x = draw(values, contract::kSuperBlock, seed);
      for (const ActivationFormat format : {ActivationFormat::kQ8_32, ActivationFormat::kQ8_K}) {
        const std::string fault = quantization_fault(format, x);
        tally.add(fault.empty(), [&] { return fault; });
      }
    }
  }
  return tally.result("definition of quantized activations",
                      "blocks of 32 and 256, scale and codes; exact");
}

}  // namespace

std::vector<CheckResult> check_definition(const HyperParameters& config,
                                          std::span<const Rope> ropes,
                                          std::span<const float> rope_divisors) {
  std::vector<CheckResult> out = {check_exp(), check_norm(config),
                                  check_routing(config, {}, false)};
  const FfnSpec sigmoids = {.router = Router::kSigmoid};
  FfnSpec whole = sigmoids;
  whole.weights_add_up = false;
  out.push_back(check_routing(config, {}, true));
  out.push_back(check_routing(config, {.weights_add_up = false}, false));
  out.push_back(check_routing(config, sigmoids, true));
  out.push_back(check_routing(config, whole, true));
  for (const auto& [kind, name] : kActivations) out.push_back(check_activation(kind, name));
  for (std::size_t i = 0; i < ropes.size(); ++i) {
    if (ropes[i].pairs() == 0) continue;  // nothing rotates
    out.push_back(
        check_angles(config, config.ropes[i], ropes[i],
                     config.ropes[i].has_divisors ? rope_divisors : std::span<const float>()));
    const auto turned = std::ranges::find_if(config.layers, [i](const LayerSpec& layer) {
      return layer.attention() != nullptr && layer.attention()->rope == i;
    });
    if (turned != config.layers.end()) out.push_back(check_rotation(turned->head_dim(), ropes[i]));
  }
  std::vector<AttentionSpec> kinds;  // in what attention over keys depends on
  for (const LayerSpec& layer : config.layers) {
    const AttentionSpec* spec = layer.attention();
    const auto is_alike = [spec](const AttentionSpec& kind) {
      return kind.head_dim == spec->head_dim && kind.scale == spec->scale;
    };
    if (spec == nullptr || std::ranges::any_of(kinds, is_alike)) continue;
    kinds.push_back(*spec);
    out.push_back(check_attention(*spec));
  }
  DeltaNetSpec delta = {.n_k_heads = 2, .n_v_heads = 6, .k_dim = 20, .v_dim = 24, .conv_width = 4};
  DeltaNetSpec mamba = delta;
  mamba.conv_width = 3;
  mamba.is_mamba = true;
  for (const LayerSpec& layer : config.layers)
    if (const DeltaNetSpec* spec = layer.delta_net()) (spec->is_mamba ? mamba : delta) = *spec;
  for (const DeltaNetSpec& spec : {delta, mamba})
    for (CheckResult& check : check_definition_of_delta_net(spec)) out.push_back(std::move(check));
  for (auto check : {check_half(), check_activations(), check_definition_of_products()})
    out.push_back(std::move(check));
  return out;
}

}  // namespace llm
