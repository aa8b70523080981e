#pragma once

#include <cstddef>

#include "quant/formats/block_formats.h"
#include "quant/formats/quantize/lanes.h"

/// The values that a code can stand for, as symmetric_search.h asks for them: the first and the
/// last, how far beyond these (inside, if negative) its starts map the extreme weight (kFurther:
/// the further ones where errors have weights), and the value nearest to v; NaN gives the first.

namespace llm {

/// All integers in [-kHalf, kHalf - 1].
template <int kHalf>
struct EvenGrid {
  static constexpr float kLow = static_cast<float>(-kHalf);
  static constexpr float kHigh = static_cast<float>(kHalf - 1);
  static constexpr float kBeyond[] = {-0.6f, -0.2f, 0.2f, 0.6f};
  static constexpr float kFurther[] = {-1.0f, -0.4f, 0.0f, 0.4f, 0.9f, 1.3f, 1.8f, 2.5f, 3.5f};
  LLM_LANES_INLINE static F32Lanes nearest(const F32Lanes& v) {
    return round_within(v, kLow, kHigh);
  }
};

/// The 16 values of the IQ4 types; the higher one of two as near.
struct Iq4Grid {
  static constexpr float kLow = kIq4Values[0];
  static constexpr float kHigh = kIq4Values[15];
  static constexpr float kBeyond[] = {-24.0f, -16.0f, -8.0f, 0.0f, 8.0f, 16.0f, 24.0f};
  static constexpr float kFurther[] = {-12.0f, -4.0f, 4.0f, 12.0f, 36.0f, 54.0f, 80.0f};
  /// Goes up by a step for each middle of two values that v reaches. Sums are exact.
  LLM_LANES_INLINE static F32Lanes nearest(const F32Lanes& v) {
    F32Lanes value = splat(kLow);
#pragma GCC unroll 15
    for (std::size_t i = 0; i < 15; ++i) {
      const float low = kIq4Values[i];
      const float high = kIq4Values[i + 1];
      value += v >= (low + high) / 2 ? splat(high - low) : F32Lanes{};
    }
    return value;
  }
};

}  // namespace llm
