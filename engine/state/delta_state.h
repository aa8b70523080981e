#pragma once

#include <cstddef>
#include <span>

#include "engine/state/conv_tail.h"

namespace llm {

/// The state of a DeltaNetSpec layer as it lies in a page (SequenceState::state()): the ConvTail,
/// then of each value head panels of 16 columns.
class DeltaState {
 public:
  static constexpr std::size_t kColumns = contract::kLanes;

  /// @pre bytes is what bytes(spec) says, aligned to 64
  DeltaState(const DeltaNetSpec& spec, std::span<std::byte> bytes)
      : spec_(spec),
        tail_(spec.convolution(), bytes),
        heads_(reinterpret_cast<float*>(bytes.data() + ConvTail::bytes(spec.convolution()))) {}

  static std::size_t bytes(const DeltaNetSpec& spec) {
    return ConvTail::bytes(spec.convolution()) + spec.n_v_heads * head_size(spec) * sizeof(float);
  }
  static std::size_t n_panels(const DeltaNetSpec& spec) {
    return (spec.v_dim + kColumns - 1) / kColumns;
  }

  const ConvTail& tail() const { return tail_; }
  /// (k_dim, 16): columns [16 panel, 16 panel + 16) of a head; those beyond v_dim are 0.
  float* panel(std::size_t head, std::size_t panel) const {
    return heads_ + head * head_size(spec_) + panel * spec_.k_dim * kColumns;
  }
  float& at(std::size_t head, std::size_t i, std::size_t column) const {
    return panel(head, column / kColumns)[i * kColumns + column % kColumns];
  }

 private:
  static std::size_t head_size(const DeltaNetSpec& spec) {
    return n_panels(spec) * spec.k_dim * kColumns;
  }

  const DeltaNetSpec& spec_;
  ConvTail tail_;
  float* heads_;
};

}  // namespace llm
