#pragma once

#include "quant/formats/block_formats.h"

namespace llm {

/// Quantizes one block by the exponent of least squared error among three: that of the MX
/// specification, with which the largest weight lies in [4, 8) times the power of two it stands for
/// (6 being the largest value), and its neighbours; of equal ones the specification's, then the
/// lower. Codes are the nearest values, of two as near the one nearer to 0. No exponent is below 0
/// or above 252, with which all values are finite.
/// @pre the weights are finite
void quantize_block(const float (&x)[32], BlockMXFP4& out);

}  // namespace llm
