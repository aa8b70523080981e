#include "engine/model/rope.h"

#include <cmath>

#include "base/check.h"

namespace llm {

Rope::Rope(const RopeSpec& spec, std::span<const float> divisors) {
  LLM_CHECK(divisors.empty() || spec.dims == 0 || divisors.size() == spec.dims / 2);
  for (std::size_t i = 0; i < spec.dims / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(spec.dims);
    const double divisor = divisors.empty() ? 1.0 : static_cast<double>(divisors[i]);
    frequencies_.push_back(std::pow(static_cast<double>(spec.theta), exponent) /
                           static_cast<double>(spec.scale) / divisor);
  }
}

void Rope::angles(std::size_t position, std::span<float> cos, std::span<float> sin) const {
  for (std::size_t i = 0; i < pairs(); ++i) {
    const double angle = static_cast<double>(position) * frequencies_[i];
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
}

}  // namespace llm
