#pragma once

#include <cstddef>
#include <span>

#include "quant/formats/block_traits.h"

namespace llm::contract {

/// The f32 weights of one row: the definition of what stored bytes mean. Equal, bit for bit, to the
/// `gguf` Python package (NaN scales aside), which fixes the order of the f32 operations:
///
///   Q1_0 Q2_0 Q4_0 Q5_0 Q8_0 Q8_K IQ4_NL TQ
///   MXFP4 NVFP4                                 d * q
///   Q4_1 Q5_1                                   (d * q) + m
///   Q3_K Q6_K IQ4_XS IQ1 IQ2 IQ3                (d * scale) * q
///   Q2_K Q4_K Q5_K                              (d * scale) * q - (dmin * min)
///
/// with q, scale and min the integers of quant/formats/block_formats.h, offsets already subtracted
/// (codebooks, IQ4_NL, IQ4_XS, MXFP4, NVFP4: the value of the code). An f16 has 11 significant
/// bits, so the products of types with 5-bit codes or fewer are exact (11 + 6 + 5 <= 24; IQ4_XS
/// 11 + 5 + 7, because no scale exceeds five bits but -32, a power of two; codebooks 11 + 5 + 6)
/// and only the last addition rounds; Q6_K's second product may round, and Q8_K's f32 d too. MXFP4,
/// NVFP4, F16 and BF16 are exact, but for weights of MXFP4 beyond f32, which are infinite.
/// @pre row.size() == row_bytes(type, out.size()); row needs no alignment
void dequantize_row(WeightType type, std::span<const std::byte> row, std::span<float> out);

}  // namespace llm::contract
