#include "engine/sampler/descending_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "engine/sampler/row_sample.h"
#include "quant/numerics/contract.h"

namespace llm {
namespace {

constexpr std::size_t kLanes = contract::kLanes;
using Lanes = std::array<float, kLanes>;

/// About how many weights are sorted; each lane then has 512 of them or more, none below the next
/// weight, so that weight is at most m / 512 and there are at most 2^17 classes.
constexpr std::size_t kLeading = 8192;
constexpr std::size_t kMostClasses = std::size_t{1} << 18;
constexpr std::size_t kPadding = 8;  ///< copies of a class are stored so many at a time

std::int32_t bits_of(float x) { return std::bit_cast<std::int32_t>(x); }

constexpr std::uint32_t kBitsOfOne = std::bit_cast<std::uint32_t>(1.0F);

/// Numbers below 2^30, ascending: least significant digit first. @param other  memory
void sort_keys(std::vector<std::uint32_t>& keys, std::vector<std::uint32_t>& other) {
  if (keys.size() < 512) return std::sort(keys.begin(), keys.end());
  constexpr std::uint32_t kDigit = 10;
  constexpr std::uint32_t kMask = (1U << kDigit) - 1;
  std::array<std::array<std::uint32_t, kMask + 1>, 3> begins{};
  for (const std::uint32_t key : keys) {
    for (std::uint32_t d = 0; d < 3; ++d) ++begins[d][key >> (d * kDigit) & kMask];
  }
  other.resize(keys.size());
  for (std::uint32_t d = 0; d < 3; ++d) {
    std::uint32_t begin = 0;
    for (std::uint32_t& count : begins[d]) begin += std::exchange(count, begin);
    for (const std::uint32_t key : keys) other[begins[d][key >> (d * kDigit) & kMask]++] = key;
    keys.swap(other);
  }
}

Lanes lanes_of(std::span<const float> values) {
  const std::size_t whole = values.size() / kLanes * kLanes;
  Lanes lanes{};
  // A quarter of the lanes at a time stays in a register.
  for (std::size_t first = 0; first < kLanes; first += 4) {
    float sums[4] = {};
    for (std::size_t i = first; i < whole; i += kLanes) {
      for (std::size_t l = 0; l < 4; ++l) sums[l] += values[i + l];
    }
    std::copy_n(sums, 4, &lanes[first]);
  }
  for (std::size_t i = whole; i < values.size(); ++i) lanes[i - whole] += values[i];
  return lanes;
}

/// The class of each weight below `from`, if it counts; else a slot from n_classes on.
void slots_of(std::span<const float> weights, float from, float per_g, std::int32_t n_classes,
              std::int32_t* slots) {
  const auto n = static_cast<std::int32_t>(weights.size());
  const float* w = weights.data();
#pragma omp simd
  for (std::int32_t i = 0; i < n; ++i) {
    // Integers compare as the floats do, which are not negative, and leave no branch.
    const std::int32_t is_below = -static_cast<std::int32_t>(bits_of(w[i]) < bits_of(from));
    const auto scaled = std::bit_cast<float>(bits_of(w[i] * per_g) & is_below);
    const auto whole = static_cast<std::int32_t>(scaled);
    const auto between =
        static_cast<std::int32_t>(bits_of(static_cast<float>(whole)) < bits_of(scaled));
    const std::int32_t is_counted = -static_cast<std::int32_t>(whole > 0);
    const std::int32_t spare = n_classes + (i & static_cast<std::int32_t>(kLanes - 1));
    slots[i] = ((2 * whole + between) & is_counted) | (spare & ~is_counted);
  }
}

}  // namespace

float lane_sum(std::span<const float> values) {
  Lanes sum = lanes_of(values);
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t l = 0; l < width; ++l) sum[l] += sum[l + width];
  }
  return sum[0];
}

void DescendingWeights::set(std::span<const float> weights) {
  size_ = weights.size();
  values_.resize(std::max(values_.size(), size_ + kPadding));
  float from = about_the_largest(weights, kLeading);
  if (from == 0.0F) from = std::numeric_limits<float>::denorm_min();  // most are masked
  const std::size_t n_leading = sort_leading(weights, from);
  if (n_leading < size_ && !append_classes(weights, from, n_leading)) sort_leading(weights, 0);
}

std::size_t DescendingWeights::sort_leading(std::span<const float> weights, float from) {
  keys_.clear();
  for_each_at_least(weights, from, [&](std::size_t i) {
    keys_.push_back(kBitsOfOne - std::bit_cast<std::uint32_t>(weights[i]));
  });
  sort_keys(keys_, other_keys_);
  for (std::size_t i = 0; i < keys_.size(); ++i)
    values_[i] = std::bit_cast<float>(kBitsOfOne - keys_[i]);
  return keys_.size();
}

bool DescendingWeights::append_classes(std::span<const float> weights, float from,
                                       std::size_t n_leading) {
  const Lanes lanes = lanes_of(all().first(n_leading));
  const float smallest = *std::ranges::min_element(lanes);
  if (smallest < 0x1p-100F) return false;
  const int exponent = std::ilogb(smallest) - 24;
  const float g = std::ldexp(1.0F, exponent);
  const float per_g = std::ldexp(1.0F, -exponent);
  if (static_cast<double>(from) * static_cast<double>(per_g) >= kMostClasses / 2) return false;
  // Class 2 j: j g; class 2 j + 1: between j g and (j + 1) g. Nothing ever changes by the first
  // two, so they are not counted. What is not counted goes to further slots, several of them so
  // that increments do not wait for each other.
  const std::size_t n_classes = 2 * (static_cast<std::size_t>(from * per_g) + 1);
  counts_.assign(n_classes + kLanes, 0);
  constexpr std::size_t kBlock = 1024;
  std::array<std::int32_t, kBlock> slots;
  for (std::size_t begin = 0; begin < weights.size(); begin += kBlock) {
    const auto block = weights.subspan(begin, std::min(kBlock, weights.size() - begin));
    slots_of(block, from, per_g, static_cast<std::int32_t>(n_classes), slots.data());
    for (std::size_t i = 0; i < block.size(); ++i) ++counts_[static_cast<std::size_t>(slots[i])];
  }
  float* out = values_.data() + n_leading;
  for (std::size_t c = n_classes; c-- > 2;) {
    const std::uint32_t count = counts_[c];
    if (count == 0) continue;
    const float value = static_cast<float>(c) / 2 * g;
    for (std::uint32_t i = 0; i < count; i += kPadding) std::fill_n(out + i, kPadding, value);
    out += count;
  }
  std::fill(out, values_.data() + size_, g / 2);
  return true;
}

}  // namespace llm
