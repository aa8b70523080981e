#include "engine/forward/route.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include "quant/numerics/activation.h"
#include "quant/numerics/arithmetic.h"

namespace llm {
namespace {

/// NaN is above all numbers, so that it is chosen and reaches the logits of the model.
bool is_above(float a, float b) { return a > b || (std::isnan(a) && !std::isnan(b)); }

/// The probabilities of experts.
class Probabilities {
 public:
  Probabilities(Router router, std::span<const float> logits) : router_(router), logits_(logits) {
    if (router == Router::kSigmoid) return;
    for (const float logit : logits)
      if (is_above(logit, most_)) most_ = logit;
    for (const float logit : logits) sum_ += contract::exp(logit - most_);
  }

  float of(std::uint32_t id) const {
    if (router_ == Router::kSigmoid)
      return contract::activate(Activation::kSigmoid, logits_[id], 1.0F);
    return contract::exp(logits_[id] - most_) / sum_;
  }

 private:
  Router router_;
  std::span<const float> logits_;
  float most_ = -INFINITY;
  float sum_ = 0;
};

}  // namespace

void route(const FfnSpec& spec, std::span<const float> logits, std::span<const float> bias,
           std::span<std::uint32_t> chosen, std::span<float> weights) {
  const bool is_softmax = spec.router == Router::kSoftmax;
  const bool by_logits = is_softmax && bias.empty();
  std::optional<Probabilities> p;
  if (!by_logits || !spec.weights_add_up) p.emplace(spec.router, logits);
  // Until the choice is made, weights has what the chosen are compared by. Ids come in ascending
  // order, so of equal ones the lower stays.
  std::size_t n = 0;
  for (std::uint32_t id = 0; id < logits.size(); ++id) {
    float key = by_logits ? logits[id] : p->of(id);
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
  std::ranges::sort(chosen);
  const bool is_share = is_softmax && spec.weights_add_up;
  float most = logits[chosen[0]];
  for (const std::uint32_t id : chosen)
    if (is_above(logits[id], most)) most = logits[id];
  float sum = 0;
  for (std::size_t j = 0; j < n; ++j) {
    weights[j] = is_share ? contract::exp(logits[chosen[j]] - most) : p->of(chosen[j]);
    sum += weights[j];
  }
  for (float& weight : weights)
    weight = (spec.weights_add_up ? weight / sum : weight) * spec.experts_scale;
}

}  // namespace llm
