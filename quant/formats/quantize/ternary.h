#pragma once

#include "quant/formats/block_formats.h"

namespace llm {

/// Quantizes one block by the scale of least error, which is found exactly. For any d > 0 a weight
/// takes 1 or -1 if |x| > d / 2, so the weights that do are the first of all in descending
/// magnitude. For the first n the best d is sum(w |x|) / sum(w) and lowers the error by
/// sum(w |x|)^2 / sum(w); all n are tried. Weights that are 0 and plus or minus one number come
/// back exactly but for d's rounding to f16.
/// @param w  what the squared error of each weight counts
/// @pre |x| < 10^9, w in (0, 1]
void quantize_block(const float (&x)[256], const float (&w)[256], BlockTQ1_0& out);
void quantize_block(const float (&x)[256], const float (&w)[256], BlockTQ2_0& out);

}  // namespace llm
