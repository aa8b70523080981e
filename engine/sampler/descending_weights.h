#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace llm {

/// What stands in for the weights of a row in descending order: f32 sums of any leading part of it,
/// one after another or in 16 lanes, have the bits that the sorted weights themselves give. The
/// leading weights are exact and sorted; of the others, which are small beside what every lane has
/// summed up by then, only the class matters that they round with, so those are counted and not
/// sorted.
///
/// Let m be the smallest lane after the leading weights, g = ulp(m) / 2. Every sum s to come is at
/// least m, so s is a multiple of 2 g, and the floats above s and the middles between them are
/// multiples of g. Weights that lie between the same two multiples of g therefore lead from s to
/// the same float, and so do those that are the same multiple: they are a class.
class DescendingWeights {
 public:
  /// @param weights  in [0, 1], not empty
  /// Cost: a nanosecond a weight; three times that where the leading ones are no few thousand.
  /// Keeps its memory, 4 bytes a weight and 1 MiB, for the next row.
  void set(std::span<const float> weights);

  std::span<const float> all() const { return {values_.data(), size_}; }

 private:
  /// Sorts what is at least `from`. @return how many those are
  std::size_t sort_leading(std::span<const float> weights, float from);
  /// Appends the weights below `from` by class. @return false: there are too many classes
  bool append_classes(std::span<const float> weights, float from, std::size_t n_leading);

  std::vector<float> values_;
  std::size_t size_ = 0;
  std::vector<std::uint32_t> keys_;
  std::vector<std::uint32_t> other_keys_;
  std::vector<std::uint32_t> counts_;
};

/// The 16-lane sum of docs/numerics.md.
float lane_sum(std::span<const float> values);

}  // namespace llm
