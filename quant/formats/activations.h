#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "quant/formats/block_formats.h"
#include "quant/formats/block_traits.h"
#include "quant/numerics/contract.h"

namespace llm {

/// 32 activations with one scale: value[j] = d * qs[j]. 40 bytes, of which the last two are padding
/// and always zero.
struct BlockQ8_32 {
  static constexpr std::size_t kWeights = contract::kBlock;
  float d;             ///< scale
  std::int8_t qs[32];  ///< codes in [-127, 127]
  std::int16_t sum;    ///< sum of qs
  std::int16_t zero;   ///< padding, 0: rows can be compared as bytes
};
static_assert(sizeof(BlockQ8_32) == 40 && alignof(BlockQ8_32) == 4);

/// What the right-hand side of a matrix product is made of.
enum class ActivationFormat {
  kF32,    ///< BlockF32
  kQ8_32,  ///< BlockQ8_32
  kQ8_K,   ///< BlockQ8_K
};

/// Calls `visitor.template operator()<Block>()` with the block struct of `format`.
template <typename Visitor>
decltype(auto) visit_activation_block(ActivationFormat format, Visitor&& visitor) {
  if (format == ActivationFormat::kQ8_32) return visitor.template operator()<BlockQ8_32>();
  if (format == ActivationFormat::kQ8_K) return visitor.template operator()<BlockQ8_K>();
  LLM_CHECK(format == ActivationFormat::kF32);
  return visitor.template operator()<BlockF32>();
}

/// The format that goes with weights of `type` in `--compute int8`: kQ8_K for the types of 256
/// weights, kQ8_32 for those of 32 to 128, kF32 for F32, F16 and BF16.
ActivationFormat activation_format(WeightType type);

/// Activations that share one block: 1, 32 or 256.
std::size_t activation_block_size(ActivationFormat format);
/// Bytes of a row of n activations. @pre n is a multiple of activation_block_size(format)
std::size_t activation_row_bytes(ActivationFormat format, std::size_t n);

/// Quantizes one block of n activations. With amax the largest magnitude:
///
///   d = amax / 127,  q = round_half_even(x * (127 / amax))
///
/// Cases outside that rule, in the order they are tested:
///  - any x is NaN or infinite: every q and sum is 0 and d = amax / 127 is NaN or infinite. amax is
///    taken as the largest magnitude *bit pattern* as an unsigned integer, so NaN > Inf > finite
///    and nothing is lost. A product then has fma(0, d_w * d, acc) with d not finite, which is NaN
///    for every finite d_w, also 0: the failure always reaches the output.
///  - 127 / amax is not finite (amax = 0 or amax < 3.74e-37): d = 0 and every q is 0.
///
/// Otherwise |q| <= 127: amax is then a normal number, so both roundings of x * (127 / amax) are
/// relative ones of 2^-24 and the product stays below 127.5.
/// @post bsums / sum are the exact sums of qs, padding is zero: equal input gives equal bytes
/// @return d. Codes go to qs, one for each of x's elements, of which there may be any number.
float quantize_codes(std::span<const float> x, std::int8_t* qs);
void quantize_block(std::span<const float, 256> x, BlockQ8_K& out);
void quantize_block(std::span<const float, 32> x, BlockQ8_32& out);
inline void quantize_block(std::span<const float, 1> x, BlockF32& out) { out.value = x[0]; }

/// Quantizes a row into `out` (blocks one after the other; plain copy for kF32).
/// @pre out.size() == activation_row_bytes(format, x.size())
void quantize_activations(ActivationFormat format, std::span<const float> x,
                          std::span<std::byte> out);

}  // namespace llm
