#pragma once

#include "quant/formats/block_formats.h"

namespace llm {

/// Quantizes one block by a search for the scale of least squared error: from each start of a grid
/// the weights take their nearest codes, and the best scale for these codes follows; the best of
/// all is improved by doing both in turn. Codes are those nearest to the scale as it is stored.
/// @pre the weights are finite
void quantize_block(const float (&x)[32], BlockIQ4_NL& out);

}  // namespace llm
