#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quant/formats/activations.h"
#include "quant/kernels/kernel_table.h"
#include "validate/report/report.h"

namespace llm {

// What the checks of kernel entries share: inputs, guarded memory, the verdict.

/// What the inputs of a case are like. All are seeded.
enum class Values {
  kPlain,     ///< uniform in [-1, 1)
  kOutliers,  ///< plain, one in 64 a thousand times that
  kGates,     ///< up to 200, half of them near where exp overflows, becomes denormal or 0
  kWide,      ///< magnitudes from 2^-140 to 2^60
  kTiny,      ///< runs of 32: all zeros (of both signs), or below some power from 2^-149 to 2^-118
  kHuge,      ///< finite, at least an eighth of the largest
  kTies,      ///< multiples of 1/2 up to 127, and 127: codes that lie between two integers
  kSpecial,   ///< plain, one in 24 NaN or an infinity
};
inline constexpr Values kAllValues[] = {Values::kPlain, Values::kOutliers, Values::kGates,
                                        Values::kWide,  Values::kTiny,     Values::kHuge,
                                        Values::kTies,  Values::kSpecial};
std::string_view name_of(Values values);
std::vector<float> draw(Values values, std::size_t n, std::uint32_t seed);

/// 1 .. 33 and 47 .. 49 elements, which is every remainder of 16 and 32, and `own` with its
/// neighbours.
std::vector<std::size_t> odd_sizes(std::size_t own);

/// The kernels' form of quantized activations.
KernelQ8K kernel_block(const BlockQ8_K& block);
KernelQ8x32 kernel_block(const BlockQ8_32& block);

/// Where two rows differ, in words; empty when they are equal bit for bit. Every NaN equals every
/// other: which of an operation's NaNs survives depends on the order of its operands, and
/// docs/numerics.md promises none.
std::string first_difference(std::span<const float> actual, std::span<const float> expected);
std::string first_difference(std::span<const std::uint16_t> actual,
                             std::span<const std::uint16_t> expected);
std::string first_difference(std::span<const KernelQ8K> actual,
                             std::span<const KernelQ8K> expected);
std::string first_difference(std::span<const KernelQ8x32> actual,
                             std::span<const KernelQ8x32> expected);

/// Elements between guards of 128 bytes, `shift` bytes past a multiple of 64.
template <typename T>
class Guarded {
 public:
  /// What guards, and elements without a value, consist of.
  enum Fill : std::uint8_t {
    kRead = 0xFF,     ///< memory that is only read, and scratch: as floats NaN
    kWritten = 0xA5,  ///< memory that is written: as f32 -2.9e-16, which no case computes
  };

  Guarded(std::size_t n, std::size_t shift, Fill fill)
      : bytes_(2 * kGuard + kAlignment + shift + n * sizeof(T), static_cast<std::byte>(fill)),
        n_(n),
        fill_(static_cast<std::byte>(fill)) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data()) + kGuard;
    begin_ = kGuard + (kAlignment - address % kAlignment) % kAlignment + shift;
  }
  Guarded(std::span<const T> values, std::size_t shift, Fill fill)
      : Guarded(values.size(), shift, fill) {
    std::memcpy(data(), values.data(), values.size_bytes());
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return reinterpret_cast<T*>(bytes_.data() + begin_); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + begin_); }
  std::span<T> span() { return {data(), n_}; }
  std::span<const T> span() const { return {data(), n_}; }

  /// Whether nothing was written outside the elements.
  bool guards_intact() const {
    const auto untouched = [&](std::byte b) { return b == fill_; };
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return std::all_of(bytes_.begin(), begin, untouched) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(n_ * sizeof(T)), bytes_.end(),
                       untouched);
  }
  /// first_difference() to what was expected; a write outside counts first.
  std::string difference(std::span<const T> expected) const {
    return guards_intact() ? first_difference(span(), expected) : "writes outside its output";
  }

 private:
  static constexpr std::size_t kGuard = 128;
  static constexpr std::size_t kAlignment = 64;

  std::vector<std::byte> bytes_;
  std::size_t n_;
  std::byte fill_;
  std::size_t begin_ = 0;
};

/// Judges one entry of KernelTable over all its calls and remembers the first that was wrong.
class EntryVerdict {
 public:
  explicit EntryVerdict(std::string entry) : entry_(std::move(entry)) {}

  /// One call with the sizes and values that `what` says; `difference` is empty if it was right.
  void add(Isa isa, std::string_view what, std::string_view difference);
  /// "kernel rms_norm", with the first difference or the number of calls and what `covered` says.
  CheckResult result(std::string_view covered) const;

 private:
  std::string entry_;
  std::size_t calls_ = 0;
  std::size_t wrong_ = 0;
  std::string first_;
};

}  // namespace llm
