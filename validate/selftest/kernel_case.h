#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "quant/formats/activations.h"
#include "quant/formats/block_traits.h"
#include "quant/kernels/kernel_table.h"
#include "validate/selftest/kernel_check.h"
#include "validate/selftest/tally.h"

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

/// Memory of n elements that nobody has written, as a vector.
template <typename T>
std::vector<T> untouched(std::size_t n) {
  const Guarded<T> memory(n, 0, Guarded<T>::kWritten);
  return {memory.span().begin(), memory.span().end()};
}

/// Judges one entry of KernelTable over all its calls on each of `tables` and remembers the first
/// that was wrong.
class EntryCheck {
 public:
  EntryCheck(std::string entry, KernelTables tables)
      : tally_{.of = "calls"}, entry_(std::move(entry)), tables_(tables) {}

  /// One call with the sizes and values that `what` says. `call(table, output)` gets `before` in
  /// guarded memory, `shift` bytes past a cache line, and must make it `expected`; it may return
  /// what else is wrong, in words.
  template <typename T, typename Call>
  void compare(const std::string& what, const std::vector<T>& expected,
               const std::vector<T>& before, std::size_t shift, const Call& call) {
    for (const KernelTable* table : tables_) {
      Guarded<T> actual(before, shift, Guarded<T>::kWritten);
      std::string other;
      if constexpr (std::is_void_v<decltype(call(*table, actual.data()))>) {
        call(*table, actual.data());
      } else {
        other = call(*table, actual.data());
      }
      const std::string difference = actual.difference(expected);
      const std::string& wrong = difference.empty() ? other : difference;
      tally_.add(wrong.empty(),
                 [&] { return std::string(isa_name(table->isa)) + ": " + what + ": " + wrong; });
    }
  }
  /// "kernel rms_norm", with the first difference or the number of calls and what `covered` says.
  CheckResult result(std::string_view covered) const {
    return tally_.result("kernel " + entry_, covered);
  }

 private:
  Tally tally_;
  std::string entry_;
  KernelTables tables_;
};

/// Calls use(n, values, seed) with odd_sizes(own), each with all kinds of values.
template <typename Use>
void for_each_case(std::size_t own, const Use& use) {
  for (const std::size_t n : odd_sizes(own))
    for (const Values values : kAllValues) use(n, values, static_cast<std::uint32_t>(n));
}
/// What that covers.
std::string sizes_text(std::string_view name, std::size_t own);

/// The bytes of codes and integer scales.
enum class Codes {
  kRandom,   ///< all of them drawn; f16 and f32 scales as of weights
  kAllOnes,  ///< every bit set; extreme f16 scales
  kMinimal,  ///< every byte 0x80, which is -128 as a signed code; extreme f16 scales
};

/// A matrix as it lies in a file: seeded random blocks, all weights finite.
std::vector<std::byte> draw_matrix(WeightType type, std::size_t n_rows, std::size_t n_cols,
                                   Codes codes);

}  // namespace llm
