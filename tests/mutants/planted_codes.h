#ifndef LLM_TESTS_MUTANTS_PLANTED_CODES_H_
#define LLM_TESTS_MUTANTS_PLANTED_CODES_H_

/// What faults make of activations and of single numbers. The kernels (planted_kernels.h) and the
/// definition (edits.toml) call the same functions, so that a fault of both is the same fault.
///
/// Like planted.h: local to its unit, and only C is called.

#include <cmath>
#include <cstdint>

#include "tests/mutants/planted_fault.h"

namespace llm {
namespace {

/// The next float: one unit in the last place.
[[maybe_unused]] inline float planted_ulp(float x) {
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x) ^ 1U);
}
[[maybe_unused]] inline bool planted_differ(float a, float b) {
  return __builtin_bit_cast(std::uint32_t, a) != __builtin_bit_cast(std::uint32_t, b);
}

/// Activations of one block, in whatever struct: n codes and a scale.
struct PlantedBlock {
  std::int8_t* codes;
  float* d;
  std::size_t n;
};

/// How many of a block's last weights share a scale of their own: 32 in Q4_K, Q5_K and IQ4_XS,
/// else 16.
[[maybe_unused]] inline std::size_t planted_sub_block(const char* type) {
  for (const char* of_32 : {"Q4_K", "Q5_K", "IQ4_XS"}) {
    if (std::strcmp(type, of_32) == 0) return 32;
  }
  return 16;
}

/// Whether a fault of a product is one of its activations, so that spoiling those makes it.
[[maybe_unused]] inline bool planted_by_input(const PlantedFault& fault) {
  return fault.is("last_code") || fault.is("last_block") || fault.is("sub_block") ||
         fault.is("sub_block_sign") || fault.is("block_scale") || fault.is("min");
}

/// Spoils one block of a row. "min" is left to the caller, who knows where sums are.
[[maybe_unused]] inline void planted_spoil(const PlantedFault& fault, std::size_t sub, bool is_last,
                                           PlantedBlock x) {
  if (fault.is("last_code") && is_last) x.codes[x.n - 1] = 0;
  if (fault.is("last_block") && is_last) std::memset(x.codes, 0, x.n);
  if (fault.is("sub_block")) std::memset(x.codes + x.n - sub, 0, sub);
  if (fault.is("sub_block_sign")) {
    for (std::size_t i = x.n - sub; i < x.n; ++i)
      x.codes[i] = static_cast<std::int8_t>(-x.codes[i]);
  }
  if (fault.is("block_scale") && is_last) *x.d *= 1.0F + 0x1p-12F;
}

/// The same in f32; `block` columns are a block.
[[maybe_unused]] inline void planted_spoil(const PlantedFault& fault, std::size_t block, float* x,
                                           std::size_t n) {
  if (block > n) block = n;
  if (fault.is("last_code")) x[n - 1] = 0;
  if (fault.is("last_block")) std::memset(x + n - block, 0, block * sizeof(float));
  for (std::size_t i = n - (n < 16 ? n : 16); i < n; ++i) {
    if (fault.is("sub_block")) x[i] = 0;
    if (fault.is("sub_block_sign")) x[i] = -x[i];
  }
  for (std::size_t i = n - block; i < n; ++i) {
    if (fault.is("block_scale")) x[i] *= 1.0F + 0x1p-12F;
  }
}

/// A quantizer's mistakes in one block of finite numbers.
[[maybe_unused]] inline void planted_quantize(const PlantedFault& fault, const float* x, float amax,
                                              PlantedBlock out) {
  if (!(amax > 1e-30F) || !(amax < 1e30F)) return;
  const auto each = [&](float scale, bool truncate) {
    for (std::size_t i = 0; i < out.n; ++i) {
      const float code = x[i] * scale;
      const float whole = truncate ? __builtin_truncf(code) : __builtin_rintf(code);
      out.codes[i] = static_cast<std::int8_t>(whole > 127.0F ? 127.0F : whole);
    }
  };
  if (fault.is("amax128")) {
    *out.d = amax / 128.0F;
    each(128.0F / amax, false);
  }
  if (fault.is("truncate")) each(127.0F / amax, true);
  if (fault.is("last_code")) {
    std::int8_t& code = out.codes[out.n - 1];
    code = static_cast<std::int8_t>(code > 0 ? code - 1 : code + 1);
  }
  if (fault.is("clip126")) {
    for (std::size_t i = 0; i < out.n; ++i) {
      if (out.codes[i] > 126) out.codes[i] = 126;
    }
  }
  if (fault.is("scale_f16"))
    *out.d = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, *out.d) & 0xFFFF'E000U);
  if (fault.is("scale_ulp")) *out.d = planted_ulp(*out.d);
  if (fault.is("zero")) std::memset(out.codes, 0, out.n);
}

/// exp and SiLU: the right result y of x, made wrong.
[[maybe_unused]] inline float planted_function(const PlantedFault& fault, float x, float up,
                                               float y) {
  if (fault.is("zero")) return 0;
  if (fault.is("identity")) return x * up;
  if (fault.is("ulp")) return planted_ulp(y);
  if (fault.is("stale")) return x;
  return y;
}

/// A conversion to f16: the right bits y of x, made wrong.
[[maybe_unused]] inline std::uint16_t planted_half(const PlantedFault& fault, float x,
                                                   std::uint16_t y) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x) & 0x7FFF'FFFFU;
  const std::uint32_t sign = y & 0x8000U;
  const bool is_normal = bits >= 0x3880'0000U && bits < 0x477F'E000U;
  if (fault.is("truncate") && is_normal)
    return static_cast<std::uint16_t>(sign | (bits - 0x3800'0000U) >> 13);
  if (fault.is("half_away") && is_normal)
    return static_cast<std::uint16_t>(sign | (bits - 0x3800'0000U + 0x1000U) >> 13);
  if (fault.is("flush") && bits < 0x3880'0000U) return static_cast<std::uint16_t>(sign);
  if (fault.is("saturate") && bits > 0x4780'0000U && bits < 0x7F80'0000U)
    return static_cast<std::uint16_t>(sign | 0x7BFFU);
  if (fault.is("ulp")) return y ^ 1U;
  return y;
}

/// What f32_to_f16 gives for x, right or wrong.
[[maybe_unused]] inline std::uint16_t planted_f32_to_f16(float x, std::uint16_t right) {
  static const PlantedSite site("to_half");
  PlantedFault fault;
  if (!site.on() || !site.bind({{"side", "definition"}}, fault)) return right;
  if (!fault.holds({{"x", __builtin_fabsf(x)}})) return right;
  const std::uint16_t y = planted_half(fault, x, right);
  if (y != right) site.trace();
  return y;
}

}  // namespace
}  // namespace llm

#endif  // LLM_TESTS_MUTANTS_PLANTED_CODES_H_
