#pragma once

#include "quant/formats/block_formats.h"

namespace llm {

/// Quantizes one block by the exponent of least squared error among three: that of the MX
/// specification, with which the largest weight lies in [4, 8) times the power of two it stands for
/// (6 being the largest value), and its neighbours; of equal ones the specification's, then the
/// lower. Codes are the nearest values, of two as near the one nearer to 0. No exponent is below 0
/// or above 252, with which all values are finite.
/// @param w  what the squared error of each weight counts
/// @pre the weights are finite, w in (0, 1]
void quantize_block(const float* x, const float* w, BlockMXFP4& out);

/// Quantizes one block by the scales of least squared error of those from half to 1.6 times that
/// with which the largest of 16 weights becomes the largest value. Weights beyond the largest scale
/// take the largest value, if that is not so far away that all scales are stored as NaN.
/// @param w  what the squared error of each weight counts
/// @pre the weights are finite, w in (0, 1]
void quantize_block(const float* x, const float* w, BlockNVFP4& out);

}  // namespace llm
