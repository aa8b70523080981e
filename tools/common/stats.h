#pragma once

#include <cstdint>
#include <span>

namespace llm {

/// Largest resident set of this process so far, in bytes.
std::uint64_t peak_rss_bytes();

/// The p-quantile (p in [0, 1]) of `values` with linear interpolation between neighbours, as numpy
/// does by default; 0 for no values. Copies and sorts.
double percentile(std::span<const double> values, double p);

}  // namespace llm
