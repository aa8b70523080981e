#pragma once

#include <cstddef>
#include <span>

#include "quant/formats/block_traits.h"

namespace llm {

/// Whether quantize_row() can make `type`: every type but Q8_K, which is an activation format.
bool is_quantization_target(WeightType type);

/// Quantizes one row of weights.
///
/// Q8_0, Q1_0 and Q2_0 have the bytes of the `gguf` Python package (and of ggml's reference
/// quantizers), and without importance Q4_0, Q4_1, Q5_0 and Q5_1 do. F16 and BF16 round to nearest
/// even. All others search for the least squared error by the methods in affine_search.h,
/// symmetric_search.h, codebook_search.h, float4.h and ternary.h; their bytes are this project's
/// own.
///
/// Equal input gives equal bytes on every machine: chunks of 256 weights are independent, sums have
/// a fixed order, and nothing is contracted. A block with a NaN or infinite weight, or with weights
/// whose scale f16 cannot hold (from about 5 * 10^5 in Q4_0 to 2 * 10^8 in Q6_K; in NVFP4 from
/// 5376), gets an infinite scale (NVFP4: NaN), which first_nonfinite_block() finds; F16 and BF16
/// keep NaN and infinity themselves. MXFP4 holds every finite weight.
/// @param importance  of each weight, at least 0: how much its squared error matters, in any unit,
///     such as the mean square of the activation that it is multiplied with. Empty: all the same.
///     Types with a search use it
/// @pre is_quantization_target(type), out.size() == row_bytes(type, row.size()), and row begins at
/// a
///      multiple of 256 weights of the tensor if bytes are to be those of the whole
/// Cost: K-quants 7-20 ns a weight on one core with AVX2, four to seven times that without, IQ4_NL
/// and IQ4_XS 10-80 ns, IQ1, IQ2 and IQ3 1-4 us, others 1-10 ns
void quantize_row(WeightType type, std::span<const float> row, std::span<std::byte> out,
                  std::span<const float> importance = {});

}  // namespace llm
