#include "engine/forward/route.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "quant/numerics/activation.h"
#include "quant/numerics/arithmetic.h"

namespace llm {
namespace {

float sigmoid(float x) { return contract::activate(Activation::kSigmoid, x, 1.0F); }

/// NaN is above all numbers, so that it is chosen and reaches the logits of the model.
bool is_above(float a, float b) { return a > b || (std::isnan(a) && !std::isnan(b)); }

}  // namespace

void route(const FfnSpec& spec, std::span<const float> logits, std::span<const float> bias,
           std::span<std::uint32_t> chosen, std::span<float> weights) {
  const bool is_softmax = spec.router == Router::kSoftmax;
  // Until the choice is made, weights has what the chosen are compared by. Ids come in ascending
  // order, so of equal ones the lower stays.
  std::size_t n = 0;
  for (std::uint32_t id = 0; id < logits.size(); ++id) {
    float key = is_softmax ? logits[id] : sigmoid(logits[id]);
    if (!bias.empty()) key += bias[id];
    std::size_t at = n;
    while (at > 0 && is_above(key, weights[at - 1])) --at;
    if (at == chosen.size()) continue;
    n = std::min(n + 1, chosen.size());
    for (std::size_t j = n - 1; j > at; --j) {
      chosen[j] = chosen[j - 1];
      weights[j] = weights[j - 1];
    }
    chosen[at] = id;
    weights[at] = key;
  }
  const float most = logits[chosen[0]];
  std::ranges::sort(chosen);
  float sum = 0;
  for (std::size_t j = 0; j < n; ++j) {
    const float logit = logits[chosen[j]];
    weights[j] = is_softmax ? contract::exp(logit - most) : sigmoid(logit);
    sum += weights[j];
  }
  for (float& weight : weights) weight = weight / sum * spec.experts_scale;
}

}  // namespace llm
