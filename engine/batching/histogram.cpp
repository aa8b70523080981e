#include "engine/batching/histogram.h"

#include <algorithm>

namespace llm {

void Histogram::add(double value) {
  ++counts_[static_cast<std::size_t>(std::ranges::lower_bound(limits_, value) - limits_.begin())];
  sum_ += value;
}

}  // namespace llm
