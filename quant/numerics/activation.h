#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "quant/numerics/arithmetic.h"

namespace llm {

/// What a gated feed-forward makes of its gate and of what the gate lets through, element by
/// element. An activation is its row in kActivations, its case in contract::activate, its lanes in
/// quant/kernels/float_ops.h and its mathematics in validate/selftest/definition_check.cpp.
enum class Activation : std::uint8_t { kSwiGlu, kGeGluTanh, kSwiGluOai, kSigmoid };

inline constexpr std::array<std::pair<Activation, std::string_view>, 4> kActivations = {
    {{Activation::kSwiGlu, "SwiGLU"},
     {Activation::kGeGluTanh, "GeGLU-tanh"},
     {Activation::kSwiGluOai, "SwiGLU-OAI"},
     {Activation::kSigmoid, "sigmoid"}}};

constexpr std::string_view activation_name(Activation kind) {
  return kActivations[static_cast<std::size_t>(kind)].second;
}

namespace contract {

/// GELU by tanh is x * (1 + tanh(z / 2)) / 2 = x / (1 + exp(-z)), z = x * (kLinear + kCubic * x^2):
/// without the difference of two numbers near 1.
struct GeluConstants {
  static constexpr float kLinear = 0x1.988454p+0F;  ///< 2 sqrt(2 / pi)
  static constexpr float kCubic = 0x1.2444f2p-4F;   ///< 0.044715 of it
};

/// Of gpt-oss (transformers' modeling_gpt_oss.py).
struct SwiGluOaiConstants {
  static constexpr float kSlope = 1.702F;
  static constexpr float kLimit = 7.0F;  ///< of the gate from above, of `up` on both sides
};

/// docs/numerics.md, each step rounded to f32.
inline float activate(Activation kind, float gate, float up) {
  switch (kind) {
    case Activation::kSwiGlu:
      return (gate / (1.0F + exp(-gate))) * up;
    case Activation::kGeGluTanh: {
      using K = GeluConstants;
      const float z = gate * std::fma(gate * gate, K::kCubic, K::kLinear);
      return (gate / (1.0F + exp(-z))) * up;
    }
    case Activation::kSwiGluOai: {
      using K = SwiGluOaiConstants;
      const float x = gate > K::kLimit ? K::kLimit : gate;
      const float u = up > K::kLimit ? K::kLimit : up;
      return (x / (1.0F + exp(-(K::kSlope * x)))) * ((-K::kLimit > u ? -K::kLimit : u) + 1.0F);
    }
    case Activation::kSigmoid:
      return up / (1.0F + exp(-gate));
  }
  return 0;
}

/// cap * tanh(x / cap); NaN where x is not finite.
inline float soft_cap(float x, float cap) {
  const float t = exp(-2.0F * std::fabs(x / cap));
  return std::copysign(cap * ((1.0F - t) / (1.0F + t)), x) + (x - x);
}

}  // namespace contract
}  // namespace llm
