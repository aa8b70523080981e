#pragma once

#include <cstddef>
#include <span>

#include "quant/formats/block_formats.h"

namespace llm {

/// Quantizes 256 weights to IQ1, IQ2 or IQ3 blocks. A sub-block of them is
///
///   w ~ a q,   a = d * (2 * scale + 1),   q entries of the codebook with signs, or (IQ1) a delta
///
/// For a given step a, the entry of least error is found exactly: an error is the sum of those of
/// two halves of an entry, of which there are at most 256 each, so tables of them make an entry
/// cost one addition, and entries with a low half that is too bad already are passed over. Where
/// the number of negative signs must be even, the tables also have the error with the cheapest sign
/// turned, so that entry and sign are chosen together. Steps are those of symmetric_search.h:
///
/// 1. Per sub-block, for real a: from each start of a grid, find the entries, then the a of least
///    squares for them. The best start is improved once.
/// 2. d from the largest a. Per sub-block, try the three integer scales nearest to a.
/// 3. With entries and scales fixed, d of least squares, rounded to f16; then new entries. Again,
/// as
///    long as the error falls.
/// @param error_weights  one for each weight
/// @pre weights are below 10^9 in magnitude, error_weights in (0, 1]; the type has a codebook;
///      out.size() == row_bytes(type, 256)
void search_codebook(WeightType type, std::span<const float, 256> weights,
                     std::span<const float, 256> error_weights, std::span<std::byte> out);

}  // namespace llm
