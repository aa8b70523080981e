#include "engine/forward/route.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "quant/numerics/arithmetic.h"

namespace llm {
namespace {

/// Whether expert a comes before expert b: by the larger logit, of equal ones the lower id. NaN is
/// above all numbers, so that it is chosen and reaches the logits of the model.
bool is_routed_first(std::span<const float> logits, std::uint32_t a, std::uint32_t b) {
  const float x = logits[a];
  const float y = logits[b];
  if (std::isnan(x) != std::isnan(y)) return std::isnan(x);
  return x > y || (!(y > x) && a < b);
}

}  // namespace

void route(std::span<const float> logits, std::span<std::uint32_t> chosen,
           std::span<float> weights) {
  std::size_t n = 0;
  for (std::uint32_t id = 0; id < logits.size(); ++id) {
    std::size_t at = n;
    while (at > 0 && is_routed_first(logits, id, chosen[at - 1])) --at;
    if (at == chosen.size()) continue;
    n = std::min(n + 1, chosen.size());
    std::copy_backward(chosen.begin() + static_cast<std::ptrdiff_t>(at),
                       chosen.begin() + static_cast<std::ptrdiff_t>(n) - 1,
                       chosen.begin() + static_cast<std::ptrdiff_t>(n));
    chosen[at] = id;
  }
  const float most = logits[chosen[0]];
  std::ranges::sort(chosen);
  float sum = 0;
  for (std::size_t j = 0; j < n; ++j) {
    weights[j] = contract::exp(logits[chosen[j]] - most);
    sum += weights[j];
  }
  for (float& weight : weights) weight /= sum;
}

}  // namespace llm
