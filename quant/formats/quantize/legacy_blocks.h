#pragma once

#include "quant/formats/block_formats.h"

namespace llm {

/// Quantizes one block of 32 weights by the rules that fix these formats' reference bytes: the
/// scale follows from the extreme weights alone, codes are rounded against the unrounded f32 scale.
void quantize_block(const float (&x)[32], BlockQ4_0& out);
void quantize_block(const float (&x)[32], BlockQ4_1& out);
void quantize_block(const float (&x)[32], BlockQ5_0& out);
void quantize_block(const float (&x)[32], BlockQ5_1& out);
void quantize_block(const float (&x)[32], BlockQ8_0& out);

}  // namespace llm
