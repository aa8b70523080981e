#pragma once

#include <cstddef>
#include <span>

#include "quant/formats/block_traits.h"

namespace llm {

/// Whether quantize_row() can make `type`: every type but Q8_K, which is an activation format, and
/// TQ1_0, TQ2_0, IQ1, IQ2, IQ3 and NVFP4, which are only read.
bool is_quantization_target(WeightType type);

/// Quantizes one row of weights.
///
/// Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 have the bytes of the `gguf` Python package (and of ggml's
/// reference quantizers). F16 and BF16 round to nearest even. The K-quants and the IQ4 types search
/// for the least squared error by the methods in affine_search.h, symmetric_search.h and iq4_nl.h,
/// MXFP4 by that in mxfp4.h; their bytes are this project's own.
///
/// Equal input gives equal bytes on every machine: blocks are independent, sums have a fixed order,
/// and nothing is contracted. A block with a NaN or infinite weight, or with weights whose scale
/// f16 cannot hold (from about 5 * 10^5 in Q4_0 to 2 * 10^8 in Q6_K), gets an infinite scale, which
/// first_nonfinite_block() finds; F16 and BF16 keep NaN and infinity themselves. MXFP4 holds every
/// finite weight.
/// @pre is_quantization_target(type), out.size() == row_bytes(type, row.size())
/// Cost: K-quants 7-20 ns a weight on one core with AVX2, four to seven times that without; IQ4_NL
/// 30 ns, IQ4_XS 80 ns, others 1-3 ns
void quantize_row(WeightType type, std::span<const float> row, std::span<std::byte> out);

}  // namespace llm
