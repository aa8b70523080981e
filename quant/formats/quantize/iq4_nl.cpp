#include "quant/formats/quantize/iq4_nl.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "quant/formats/half.h"

namespace llm {
namespace {

constexpr int kLowest = kIq4Values[0];
constexpr int kHighest = kIq4Values[15];
/// Starts map the extreme weight to a value this far beyond or inside the last one of its side.
constexpr int kReach = 24;
constexpr int kStep = 8;
constexpr int kRefinements = 2;

/// What is nearest to each half of an integer from kLowest on; the higher one of two.
struct Nearest {
  std::array<std::uint8_t, 2 * (kHighest - kLowest) + 1> code{};
  std::array<float, 2 * (kHighest - kLowest) + 1> value{};
};
constexpr Nearest kNearest = [] {
  Nearest nearest;
  std::uint8_t code = 0;
  for (std::size_t i = 0; i < nearest.code.size(); ++i) {
    const int twice = static_cast<int>(i) + 2 * kLowest;
    while (code < 15 && twice >= kIq4Values[code] + kIq4Values[code + 1]) ++code;
    nearest.code[i] = code;
    nearest.value[i] = kIq4Values[code];
  }
  return nearest;
}();

/// The index in kNearest of v. The middle of two values is a multiple of 1/2, so all v between two
/// multiples have the same nearest value.
std::size_t index_of(float v) {
  constexpr auto kLast = static_cast<float>(2 * (kHighest - kLowest));
  return static_cast<std::size_t>(
      static_cast<int>(std::clamp(2.0F * v - 2.0F * kLowest, 0.0F, kLast)));
}

/// The scale that fits best when each u takes the code nearest to u * inverse, and by how much it
/// lowers the squared error. With t the values of the codes: (u t) / (t t), (u t)^2 / (t t).
struct Fit {
  float scale = 0;
  float gain = 0;
};
Fit fit(const float (&u)[32], float inverse) {
  float ut[4] = {};
  float tt[4] = {};
  for (std::size_t j = 0; j < 32; j += 4) {
    for (std::size_t i = 0; i < 4; ++i) {
      const float t = kNearest.value[index_of(u[j + i] * inverse)];
      ut[i] += u[j + i] * t;
      tt[i] += t * t;
    }
  }
  const float all_ut = (ut[0] + ut[1]) + (ut[2] + ut[3]);
  const float all_tt = (tt[0] + tt[1]) + (tt[2] + tt[3]);
  return {all_ut / all_tt, all_ut * all_ut / all_tt};  // no value is 0
}

}  // namespace

void quantize_block(const float (&x)[32], BlockIQ4_NL& out) {
  float extreme = 0;
  for (const float v : x) extreme = std::abs(v) > std::abs(extreme) ? v : extreme;
  Fit best;
  if (extreme != 0) {
    float u[32];  // in units of the extreme weight, so that no sum overflows
    for (std::size_t j = 0; j < 32; ++j) u[j] = x[j] / extreme;
    const auto consider = [&](float inverse) {
      const Fit found = fit(u, inverse);
      if (found.gain > best.gain) best = found;
    };
    for (int beyond = -kReach; beyond <= kReach; beyond += kStep) {
      consider(static_cast<float>(kLowest - beyond));
      consider(static_cast<float>(kHighest + beyond));
    }
    for (int i = 0; i < kRefinements; ++i) consider(1 / best.scale);
  }
  out.d = f32_to_f16(best.scale * extreme);
  const float d = f16_to_f32(out.d);
  const float inverse = d != 0 ? 1 / d : 0;
  for (std::size_t j = 0; j < 16; ++j) {
    out.qs[j] = static_cast<std::uint8_t>(kNearest.code[index_of(x[j] * inverse)] |
                                          kNearest.code[index_of(x[j + 16] * inverse)] << 4);
  }
}

}  // namespace llm
