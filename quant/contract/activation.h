#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "quant/contract/arithmetic.h"

namespace llm {

/// What a gated feed-forward makes of its gate and of what the gate lets through, element by
/// element. An activation is its row in kActivations, its case in contract::activate, its lanes in
/// quant/kernels/float_ops.h and its mathematics in validate/self/definition_check.cpp.
enum class Activation : std::uint8_t { kSwiGlu };

inline constexpr std::array<std::pair<Activation, std::string_view>, 1> kActivations = {
    {{Activation::kSwiGlu, "SwiGLU"}}};

constexpr std::string_view activation_name(Activation kind) {
  return kActivations[static_cast<std::size_t>(kind)].second;
}

namespace contract {

/// docs/numerics.md, each step rounded to f32.
inline float activate(Activation kind, float gate, float up) {
  switch (kind) {
    case Activation::kSwiGlu:
      return (gate / (1.0F + exp(-gate))) * up;
  }
  return 0;
}

}  // namespace contract
}  // namespace llm
