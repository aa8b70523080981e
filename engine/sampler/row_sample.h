#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>

namespace llm {

/// A value that about `n` of `values` are not below: -inf where that is all of them, or nearly.
/// Found in an evenly spread sample; what is not below it is never wrong, only more or fewer.
inline float about_the_largest(std::span<const float> values, std::size_t n) {
  constexpr std::size_t kSample = 1024;
  const std::size_t rank = n * kSample / std::max<std::size_t>(values.size(), 1);
  if (values.size() < 4 * kSample || rank >= kSample / 2)
    return -std::numeric_limits<float>::infinity();
  std::array<float, kSample> sample;
  const std::size_t step = values.size() / kSample;
  for (std::size_t i = 0; i < kSample; ++i) sample[i] = values[i * step];
  std::ranges::nth_element(sample, sample.begin() + static_cast<std::ptrdiff_t>(rank),
                           std::greater<>());
  return sample[rank];
}

/// Calls visit(i) in ascending order for every value that is not below `from`. Quick where those
/// are few.
template <typename Visit>
void for_each_at_least(std::span<const float> values, float from, const Visit& visit) {
  constexpr std::size_t kBlock = 16;
  const std::size_t whole = values.size() / kBlock * kBlock;
  for (std::size_t begin = 0; begin < whole; begin += kBlock) {
    const float* block = &values[begin];
    int any = 0;
    for (std::size_t l = 0; l < kBlock; ++l) any |= block[l] >= from ? 1 : 0;
    if (any == 0) continue;
    // Without a branch for each value.
    std::array<std::size_t, kBlock> found;
    std::size_t n_found = 0;
    for (std::size_t l = 0; l < kBlock; ++l) {
      found[n_found] = begin + l;
      n_found += block[l] >= from ? 1 : 0;
    }
    for (std::size_t i = 0; i < n_found; ++i) visit(found[i]);
  }
  for (std::size_t i = whole; i < values.size(); ++i) {
    if (values[i] >= from) visit(i);
  }
}

}  // namespace llm
