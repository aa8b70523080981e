#pragma once

#include "quant/formats/block_formats.h"

namespace llm {

/// Quantizes one block by the rules that fix these formats' reference bytes: the
/// scale follows from the extreme weights alone, codes are rounded against the unrounded f32 scale.
void quantize_block(const float (&x)[32], BlockQ4_0& out);
void quantize_block(const float (&x)[32], BlockQ4_1& out);
void quantize_block(const float (&x)[32], BlockQ5_0& out);
void quantize_block(const float (&x)[32], BlockQ5_1& out);
void quantize_block(const float (&x)[32], BlockQ8_0& out);
/// d is the mean magnitude, each code the weight's sign.
void quantize_block(const float (&x)[128], BlockQ1_0& out);
/// d is the largest magnitude: of the four codes the last is not used.
void quantize_block(const float (&x)[64], BlockQ2_0& out);

}  // namespace llm
