#pragma once

// Norm, RoPE, activations of gates, exp, f16 and the quantization of activations on 16 lanes. Part
// of an ISA unit. Each equals the loops of quant/formats/activations.cpp and
// engine/forward/reference.

#include "quant/kernels/int_dot.h"
#include "quant/kernels/kernel_table.h"
#include "quant/numerics/arithmetic.h"

namespace {

/// contract::exp in 16 lanes.
template <class A>
LLM_INLINE F32x16<A> exp16(F32x16<A> x) {
  using K = llm::contract::ExpConstants;
  const auto max = broadcast_f32<A>(K::kMax);
  const auto min = broadcast_f32<A>(K::kMin);
  x = select_greater(x, max, max, x);
  x = select_greater(min, x, min, x);
  const auto magic = broadcast_f32<A>(K::kMagic);
  const auto shifted = fma(x, broadcast_f32<A>(K::kLog2E), magic);
  const auto n = shifted - magic;
  const auto n_int = bits(shifted) - bits(magic);
  auto r = fma(n, broadcast_f32<A>(-K::kLn2High), x);
  r = fma(n, broadcast_f32<A>(-K::kLn2Low), r);
  auto p = broadcast_f32<A>(K::kPoly[4]);
  _Pragma("GCC unroll 4") for (int i = 3; i >= 0; --i) {
    p = fma(p, r, broadcast_f32<A>(K::kPoly[static_cast<std::size_t>(i)]));
  }
  p = fma(p, r * r, r) + broadcast_f32<A>(1.0F);
  const auto half = shift_right_signed<1>(n_int);
  const auto bias = broadcast_i32<A>(127);
  const auto power = [&](const I32x16<A>& e) { return from_bits(shift_left<23>(e + bias)); };
  return p * power(half) * power(n_int - half);
}

/// Loads n < 16 floats, the rest `absent`.
template <class A>
LLM_INLINE F32x16<A> load_tail(const float* p, std::size_t n, float absent = 0.0F) {
  alignas(64) float lanes[16];
  for (std::size_t i = 0; i < 16; ++i) lanes[i] = i < n ? p[i] : absent;
  return load_f32<A>(lanes);
}
template <class A>
LLM_INLINE void store_tail(float* p, const F32x16<A>& v, std::size_t n) {
  alignas(64) float lanes[16];
  store_f32(lanes, v);
  for (std::size_t i = 0; i < n; ++i) p[i] = lanes[i];
}

template <class A>
void rms_norm(const float* x, const float* weight, std::size_t n, float eps, float* y) {
  const std::size_t whole = n / 16 * 16;
  auto squares = broadcast_f32<A>(0);
  for (std::size_t i = 0; i < whole; i += 16) {
    const auto v = load_f32<A>(x + i);
    squares = fma(v, v, squares);
  }
  if (whole < n) {
    const auto v = load_tail<A>(x + whole, n - whole);
    squares = fma(v, v, squares);
  }
  const float mean = lane_sum(squares) / static_cast<float>(n);
  const float s = 1.0F / std::sqrt(mean + eps) + (mean - mean);  // NaN, not 0, where mean overflows
  const auto s16 = broadcast_f32<A>(s);
  for (std::size_t i = 0; i < whole; i += 16) {
    store_f32(y + i, (load_f32<A>(x + i) * s16) * load_f32<A>(weight + i));
  }
  for (std::size_t i = whole; i < n; ++i) y[i] = (x[i] * s) * weight[i];
}

template <class A>
void rope(float* x, std::size_t begin, std::size_t end, std::size_t head_dim, const float* cos,
          const float* sin, std::size_t pairs) {
  // Pairs are neighbours, so even and odd lanes would need shuffles; 2 * pairs floats a head are
  // few.
  for (std::size_t head = begin / head_dim * head_dim; head < end; head += head_dim) {
    const std::size_t first_pair = begin > head ? (begin - head) / 2 : 0;
    const std::size_t pairs_here = (end - head) / 2 < pairs ? (end - head) / 2 : pairs;
    for (std::size_t i = first_pair; i < pairs_here; ++i) {
      const std::size_t first = head + 2 * i;
      const std::size_t second = first + 1;
      const float x0 = x[first];
      const float x1 = x[second];
      x[first] = __builtin_fmaf(x0, cos[i], -(x1 * sin[i]));
      x[second] = __builtin_fmaf(x0, sin[i], x1 * cos[i]);
    }
  }
}

template <class A>
void axpy(float a, const float* x, std::size_t n, float* y) {
  const std::size_t whole = n / 16 * 16;
  const auto factor = broadcast_f32<A>(a);
  for (std::size_t i = 0; i < whole; i += 16)
    store_f32(y + i, fma(factor, load_f32<A>(x + i), load_f32<A>(y + i)));
  if (whole < n)
    store_tail(y + whole,
               fma(factor, load_tail<A>(x + whole, n - whole), load_tail<A>(y + whole, n - whole)),
               n - whole);
}

template <class A>
LLM_INLINE F32x16<A> minus(const F32x16<A>& x) {
  return from_bits(bits(x) ^ broadcast_i32<A>(INT32_MIN));  // also of zero
}

template <class A>
LLM_INLINE F32x16<A> swiglu16(const F32x16<A>& gate, const F32x16<A>& up) {
  return (gate / (broadcast_f32<A>(1.0F) + exp16(minus(gate)))) * up;
}

template <class A>
LLM_INLINE F32x16<A> geglu_tanh16(const F32x16<A>& gate, const F32x16<A>& up) {
  using K = llm::contract::GeluConstants;
  const auto slope = fma(gate * gate, broadcast_f32<A>(K::kCubic), broadcast_f32<A>(K::kLinear));
  return (gate / (broadcast_f32<A>(1.0F) + exp16(minus(gate * slope)))) * up;
}

template <class A>
LLM_INLINE F32x16<A> swiglu_oai16(const F32x16<A>& gate, const F32x16<A>& up) {
  using K = llm::contract::SwiGluOaiConstants;
  const auto one = broadcast_f32<A>(1.0F);
  const auto most = broadcast_f32<A>(K::kLimit);
  const auto least = broadcast_f32<A>(-K::kLimit);
  const auto x = select_greater(gate, most, most, gate);
  const auto u = select_greater(up, most, most, up);
  const auto gated = x / (one + exp16(minus(broadcast_f32<A>(K::kSlope) * x)));
  return gated * (select_greater(least, u, least, u) + one);
}

template <class A>
LLM_INLINE F32x16<A> sigmoid16(const F32x16<A>& gate, const F32x16<A>& up) {
  return up / (broadcast_f32<A>(1.0F) + exp16(minus(gate)));
}

template <class A>
void soft_cap(float* x, std::size_t n, float cap) {
  const auto of16 = [cap](const F32x16<A>& v) LLM_INLINE_LAMBDA {
    const auto one = broadcast_f32<A>(1.0F);
    const auto most = broadcast_f32<A>(cap);
    const auto sign = broadcast_i32<A>(INT32_MIN);
    const auto magnitude = from_bits(bits(v / most) & broadcast_i32<A>(INT32_MAX));
    const auto t = exp16(broadcast_f32<A>(-2.0F) * magnitude);
    const auto y = most * ((one - t) / (one + t));
    return from_bits(bits(y) | (bits(v) & sign)) + (v - v);
  };
  const std::size_t whole = n / 16 * 16;
  for (std::size_t i = 0; i < whole; i += 16) store_f32(x + i, of16(load_f32<A>(x + i)));
  if (whole < n) store_tail(x + whole, of16(load_tail<A>(x + whole, n - whole)), n - whole);
}

/// @param kActivate16  of 16 gates and what they let through
template <class A, auto kActivate16>
void activate_row(float* gate, const float* up, std::size_t n) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16)
    store_f32(gate + i, kActivate16(load_f32<A>(gate + i), load_f32<A>(up + i)));
  if (i < n) {
    const auto last = kActivate16(load_tail<A>(gate + i, n - i), load_tail<A>(up + i, n - i));
    store_tail(gate + i, last, n - i);
  }
}

template <class A>
void activate(llm::Activation kind, float* gate, const float* up, std::size_t n) {
  switch (kind) {
    case llm::Activation::kSwiGlu:
      return activate_row<A, swiglu16<A>>(gate, up, n);
    case llm::Activation::kGeGluTanh:
      return activate_row<A, geglu_tanh16<A>>(gate, up, n);
    case llm::Activation::kSwiGluOai:
      return activate_row<A, swiglu_oai16<A>>(gate, up, n);
    case llm::Activation::kSigmoid:
      return activate_row<A, sigmoid16<A>>(gate, up, n);
  }
}

template <class A>
void row_to_half(const float* x, std::size_t n, std::uint16_t* y) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) to_half(y + i, load_f32<A>(x + i));
  if (i < n) {
    alignas(32) std::uint16_t lanes[16];
    to_half(lanes, load_tail<A>(x + i, n - i));
    std::memcpy(y + i, lanes, (n - i) * sizeof(*y));
  }
}

template <class A>
void exp_distances(const float* x, std::size_t n, float largest, float divisor, float* y) {
  const auto largest16 = broadcast_f32<A>(largest);
  const auto divisor16 = broadcast_f32<A>(divisor);
  const auto one = [&](const F32x16<A>& v) {
    const auto distance = v - largest16;
    return exp16(divisor == 1.0F ? distance : distance / divisor16);
  };
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) store_f32(y + i, one(load_f32<A>(x + i)));
  if (i < n) store_tail(y + i, one(load_tail<A>(x + i, n - i, largest)), n - i);
}

/// The largest magnitude of n activations (a multiple of 16), NaN above Inf above numbers.
template <class A>
LLM_INLINE float largest_magnitude(const float* x, std::size_t n) {
  const auto magnitude = broadcast_i32<A>(INT32_MAX);
  auto max = broadcast_i32<A>(0);
  for (std::size_t i = 0; i < n; i += 16) {
    max = max_unsigned(max, bits(load_f32<A>(x + i)) & magnitude);
  }
  return __builtin_bit_cast(float, lane_max_unsigned(max));
}

/// What values of largest magnitude amax, and 0 at least, become integers up to `most` with.
struct CodeScale {
  float step;
  float inverse;
  bool vanishes;  ///< all integers are 0: amax is not finite, or too small
};
LLM_INLINE CodeScale code_scale(float amax, float most) {
  const float inverse = most / amax;
  const bool finite = amax <= std::numeric_limits<float>::max();
  const bool vanishes = !finite || !(inverse <= std::numeric_limits<float>::max());
  return {finite && vanishes ? 0.0F : amax / most, inverse, vanishes};
}

/// Codes of n activations, the sum of each 16 codes, and the block's scale (returned).
template <class A, std::size_t n>
LLM_INLINE float quantize_codes(const float* x, std::int8_t* qs, std::int32_t* sums) {
  constexpr auto kMaxCode = static_cast<float>(llm::contract::kMaxActivationCode);
  const CodeScale block = code_scale(largest_magnitude<A>(x, n), kMaxCode);
  if (block.vanishes) {
    std::memset(qs, 0, n);
    std::memset(sums, 0, n / 16 * sizeof(*sums));
    return block.step;
  }
  // Adding 1.5 * 2^23 rounds to an integer, half to even, and leaves it in the low bits.
  const auto magic = broadcast_f32<A>(0x1.8p+23F);
  const auto scale = broadcast_f32<A>(block.inverse);
  for (std::size_t i = 0; i < n; i += 16) {
    const auto codes = bits(load_f32<A>(x + i) * scale + magic) - bits(magic);
    to_bytes(qs + i, codes);
    sums[i / 16] = lane_sum(codes);
  }
  return block.step;
}

template <class A>
void quantize_q8k(const float* x, std::size_t n, llm::KernelQ8K* out, std::size_t n_tokens) {
  constexpr std::size_t kSize = llm::KernelQ8K::kSize;
  for (std::size_t k = 0; k < n; k += kSize, out += n_tokens) {
    std::int32_t sums[kSize / 16];
    out->d = quantize_codes<A, kSize>(x + k, out->qs, sums);
    out->sum = 0;
    for (std::size_t s = 0; s < kSize / 16; ++s) {
      out->sums16[s] = static_cast<std::int16_t>(sums[s]);
      out->minus32[s] = -32 * sums[s];
      out->sum += sums[s];
    }
    for (std::size_t s = 0; s < kSize / 32; ++s) {
      out->sums32[s] = static_cast<std::int16_t>(sums[2 * s] + sums[2 * s + 1]);
    }
    out->reserved[0] = out->reserved[1] = 0;
  }
}

template <class A>
void quantize_q8x32(const float* x, std::size_t n, llm::KernelQ8x32* out, std::size_t n_tokens) {
  constexpr std::size_t kSize = llm::KernelQ8x32::kSize;
  for (std::size_t k = 0; k < n; k += kSize, out += n_tokens) {
    std::int32_t sums[kSize / 16];
    out->d = quantize_codes<A, kSize>(x + k, out->qs, sums);
    out->sum = sums[0] + sums[1];
  }
}

}  // namespace
