#pragma once

#include <cstdint>
#include <optional>

namespace llm {

/// An unsigned 64-bit size whose arithmetic remembers overflow. Every size that is computed from a
/// file's numbers goes through it, so no product or sum can wrap unseen:
///
///   const auto bytes = (CheckedSize(blocks) * block_bytes + offset).value();
///   if (!bytes) return error("byte size overflows");
class CheckedSize {
 public:
  constexpr explicit CheckedSize(std::uint64_t value) : value_(value) {}

  constexpr CheckedSize operator*(std::uint64_t factor) const {
    CheckedSize result(0);
    result.overflow_ = __builtin_mul_overflow(value_, factor, &result.value_) || overflow_;
    return result;
  }

  constexpr CheckedSize operator+(std::uint64_t addend) const {
    CheckedSize result(0);
    result.overflow_ = __builtin_add_overflow(value_, addend, &result.value_) || overflow_;
    return result;
  }

  /// The next multiple of `alignment`, a power of two.
  constexpr CheckedSize align_up(std::uint64_t alignment) const {
    CheckedSize result = *this + (alignment - 1);
    result.value_ &= ~(alignment - 1);
    return result;
  }

  /// The exact result, or nothing when any step overflowed.
  constexpr std::optional<std::uint64_t> value() const {
    return overflow_ ? std::nullopt : std::optional<std::uint64_t>(value_);
  }

 private:
  std::uint64_t value_;
  bool overflow_ = false;
};

}  // namespace llm
