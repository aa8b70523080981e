#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "quant/numerics/f64_functions.h"

namespace llm {

void apply_yarn(RopeSpec& spec, double original_context, bool rounds) {
  constexpr double kFastTurns = 32;  // in the original context; faster pairs are left alone
  constexpr double kSlowTurns = 1;
  const auto dims = static_cast<double>(spec.dims);
  const auto pair_of = [&](double turns) {
    return dims * contract::log(original_context / (turns * 2 * std::numbers::pi)) /
           (2 * contract::log(static_cast<double>(spec.theta)));
  };
  const double fast = pair_of(kFastTurns);
  const double slow = pair_of(kSlowTurns);
  YarnRamp ramp{std::max(rounds ? std::floor(fast) : fast, 0.0),
                std::min(rounds ? std::ceil(slow) : slow, dims - 1)};
  if (ramp.high == ramp.low) ramp.high += 0.001;
  spec.yarn = ramp;
  if (spec.scale > 1.0F) spec.magnitude *= 0.1 * contract::log(static_cast<double>(spec.scale)) + 1;
}

Rope::Rope(const RopeSpec& spec, std::span<const float> divisors) : magnitude_(spec.magnitude) {
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

}  // namespace llm
