#pragma once

#include <cstddef>
#include <span>

#include "quant/formats/block_traits.h"

namespace llm::reference {

/// Weights as they lie in a file: n_rows rows of n_cols, one after the other.
struct MatrixBytes {
  WeightType type;
  std::size_t n_rows;
  std::size_t n_cols;                ///< a multiple of the type's block_weights
  std::span<const std::byte> bytes;  ///< n_rows * row_bytes(type, n_cols)
};

/// y = W x for T tokens in plain loops, `--compute int8`: quantizes each row of x to
/// activation_format(w.type), then y[t][r] = dot_row(w row r, x row t).
///
/// @param x  (T, n_cols), f32
/// @param y  (T, n_rows), f32, overwritten
/// @pre   sizes agree; T = x.size() / n_cols
void matmul(const MatrixBytes& w, std::span<const float> x, std::span<float> y);

/// The same for `--compute f32`: y[t][r] = dot_row_f32(w row r, x row t).
void matmul_f32(const MatrixBytes& w, std::span<const float> x, std::span<float> y);

}  // namespace llm::reference
