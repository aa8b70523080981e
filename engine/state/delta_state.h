#pragma once

#include <cstddef>
#include <span>

#include "engine/model/layer_spec.h"
#include "quant/numerics/contract.h"

namespace llm {

/// The state of a DeltaNetSpec layer as it lies in a page (SequenceState::state()): the last rows
/// that the convolution read, then of each value head panels of 16 columns.
class DeltaState {
 public:
  static constexpr std::size_t kColumns = contract::kLanes;

  /// @pre bytes is what bytes(spec) says, aligned to 64
  DeltaState(const DeltaNetSpec& spec, std::span<std::byte> bytes)
      : spec_(spec), values_(reinterpret_cast<float*>(bytes.data())) {}

  static std::size_t bytes(const DeltaNetSpec& spec) {
    return (tail_size(spec) + spec.n_v_heads * head_size(spec)) * sizeof(float);
  }
  static std::size_t n_panels(const DeltaNetSpec& spec) {
    return (spec.v_dim + kColumns - 1) / kColumns;
  }

  /// What the convolution read of the position `age` before the next one. @pre 1 <= age < width
  std::span<float> input(std::size_t age) const {
    const std::size_t n = spec_.channels();
    return {values_ + (spec_.conv_width - 1 - age) * n, n};
  }
  /// (k_dim, 16): columns [16 panel, 16 panel + 16) of a head; those beyond v_dim are 0.
  float* panel(std::size_t head, std::size_t panel) const {
    return values_ + tail_size(spec_) + head * head_size(spec_) + panel * spec_.k_dim * kColumns;
  }
  float& at(std::size_t head, std::size_t i, std::size_t column) const {
    return panel(head, column / kColumns)[i * kColumns + column % kColumns];
  }

 private:
  static std::size_t tail_size(const DeltaNetSpec& spec) {
    const std::size_t n = (spec.conv_width - 1) * spec.channels();
    return (n + kColumns - 1) / kColumns * kColumns;
  }
  static std::size_t head_size(const DeltaNetSpec& spec) {
    return n_panels(spec) * spec.k_dim * kColumns;
  }

  const DeltaNetSpec& spec_;
  float* values_;
};

}  // namespace llm
