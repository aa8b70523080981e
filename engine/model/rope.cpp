#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace llm {

Rope::Rope(const RopeSpec& spec, std::span<const float> divisors) : magnitude_(spec.magnitude) {
  LLM_CHECK(divisors.empty() || spec.dims == 0 || divisors.size() == spec.dims / 2);
  for (std::size_t i = 0; i < spec.dims / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(spec.dims);
    const double divisor = divisors.empty() ? 1.0 : static_cast<double>(divisors[i]);
    const double frequency = std::pow(static_cast<double>(spec.theta), exponent);
    const double scaled = frequency / static_cast<double>(spec.scale);
    const double ramp = spec.yarn ? std::clamp((static_cast<double>(i) - spec.yarn->low) /
                                                   (spec.yarn->high - spec.yarn->low),
                                               0.0, 1.0)
                                  : 1.0;
    frequencies_.push_back((scaled * ramp + frequency * (1 - ramp)) / divisor);
  }
}

void Rope::angles(std::size_t position, std::span<float> cos, std::span<float> sin) const {
  for (std::size_t i = 0; i < pairs(); ++i) {
    const double angle = static_cast<double>(position) * frequencies_[i];
    cos[i] = static_cast<float>(std::cos(angle) * magnitude_);
    sin[i] = static_cast<float>(std::sin(angle) * magnitude_);
  }
}

}  // namespace llm
