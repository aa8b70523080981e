#pragma once

#include <cstddef>
#include <span>

#include "engine/model/layer_spec.h"
#include "quant/numerics/contract.h"

namespace llm {

/// What a sequence keeps for a convolution: the last rows that it read. It is the whole state of a
/// ShortConvSpec layer and the beginning of a DeltaNetSpec layer's (DeltaState).
class ConvTail {
 public:
  /// @pre bytes has at least bytes(spec) bytes, aligned to 64
  ConvTail(const ConvolutionSpec& spec, std::span<std::byte> bytes)
      : spec_(spec), values_(reinterpret_cast<float*>(bytes.data())) {}

  /// A multiple of 64.
  static std::size_t bytes(const ConvolutionSpec& spec) {
    constexpr std::size_t kLine = contract::kLanes;
    return (spec.tail() + kLine - 1) / kLine * kLine * sizeof(float);
  }

  /// What the convolution read of the position `age` before the next one. @pre 1 <= age < width
  std::span<float> input(std::size_t age) const {
    return {values_ + (spec_.width - 1 - age) * spec_.channels, spec_.channels};
  }

 private:
  ConvolutionSpec spec_;
  float* values_;
};

}  // namespace llm
