#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "quant/numerics/f64_functions.h"

namespace llm {

void apply_yarn(RopeSpec& spec, const YarnParameters& yarn) {
  const auto dims = static_cast<double>(spec.dims);
  const auto pair_of = [&](double turns) {
    return dims * contract::log(yarn.original_context / (turns * 2 * std::numbers::pi)) /
           (2 * contract::log(static_cast<double>(spec.theta)));
  };
  const double fast = pair_of(yarn.fast_turns);
  const double slow = pair_of(yarn.slow_turns);
  YarnRamp ramp{std::max(yarn.rounds ? std::floor(fast) : fast, 0.0),
                std::min(yarn.rounds ? std::ceil(slow) : slow, dims - 1)};
  if (ramp.high == ramp.low) ramp.high += 0.001;
  spec.yarn = ramp;
  if (spec.scale <= 1.0F) return;
  const double growth = 0.1 * contract::log(static_cast<double>(spec.scale));
  spec.magnitude *= growth + 1;
  if (yarn.log_multiplier != 0) spec.magnitude /= yarn.log_multiplier * growth + 1;
}

Rope::Rope(const RopeSpec& spec, std::span<const float> divisors)
    : magnitude_(spec.magnitude),
      query_growth_(static_cast<double>(spec.query_growth)),
      query_period_(spec.query_period) {
  LLM_CHECK(divisors.empty() || spec.dims == 0 || divisors.size() == spec.dims / 2);
  for (std::size_t i = 0; i < spec.dims / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(spec.dims);
    const double divisor = divisors.empty() ? 1.0 : static_cast<double>(divisors[i]);
    const double frequency = contract::power(static_cast<double>(spec.theta), exponent);
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
    const contract::CosSin of = contract::cos_sin(static_cast<double>(position) * frequencies_[i]);
    cos[i] = static_cast<float>(of.cos * magnitude_);
    sin[i] = static_cast<float>(of.sin * magnitude_);
  }
}

float Rope::query_scale(std::size_t position) const {
  if (query_growth_ == 0) return 1;
  const auto periods = static_cast<double>(position / query_period_);
  return static_cast<float>(1 + query_growth_ * contract::log(1 + periods));
}

}  // namespace llm
