#pragma once

#include <cstddef>
#include <span>

#include "quant/formats/block_traits.h"

namespace llm::reference {

/// The product of one weight row with one activation row, the definition every kernel must equal
/// bit for bit (docs/numerics.md). One f32 accumulator, starting at +0, runs over blocks in
/// ascending k:
///
///   acc = fma(float(isum), d_w * d_x, acc)
///   acc = fma(float(msum), m_w * d_x, acc)    types with an offset only
///
/// with exact int32 isum and msum (formulas in docs/formats.md), m_w = m for Q4_1 and Q5_1 and
/// m_w = -dmin for Q2_K, Q4_K and Q5_K. F32, F16 and BF16: acc = fma(w, x, acc) for each k.
/// @param activations  y.size() rows in activation_format(type), each of as many elements as the
/// weight row, whose codes are unpacked once for all of them
/// @pre all rows hold whole blocks of the same number of elements; no alignment is needed
void dot_row(WeightType type, std::span<const std::byte> row,
             std::span<const std::byte> activations, std::span<float> y);
/// The same with one row of activations.
float dot_row(WeightType type, std::span<const std::byte> row,
              std::span<const std::byte> activations);

/// The product for `--compute f32`: w dequantized (dequantize_row), then acc = fma(w, x, acc) in
/// ascending k, from +0. For each row of x, (y.size(), n): one dequantization serves them all.
/// @pre row.size() == row_bytes(type, n)
void dot_row_f32(WeightType type, std::span<const std::byte> row, std::span<const float> x,
                 std::span<float> y);
/// The same with one row of activations.
float dot_row_f32(WeightType type, std::span<const std::byte> row, std::span<const float> x);

}  // namespace llm::reference
