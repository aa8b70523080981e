#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/checked_size.h"
#include "base/result.h"

namespace llm {

namespace detail {
/// `size` zero bytes at an address that is a multiple of 64 (and of 2 MiB, huge pages advised, from
/// 2 MiB on), or nullptr.
void* allocate_zeroed(std::size_t size);
void release(void* data, std::size_t size);
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;
/// `size` bytes of fresh address space for mmap's `protection` and `flags` (private and anonymous),
/// beginning with a huge page where it has room for one. nullptr: the system refuses (errno).
void* map_pages(std::size_t size, int protection, int flags);
Error out_of_memory(std::uint64_t bytes, std::string_view what);
}  // namespace detail

/// A zero-filled, 64-byte aligned array of trivial elements. Move-only. Pages are touched by the
/// kernel on first use, so an allocation costs nothing until it is written.
template <typename T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedBuffer() = default;

  /// @param what  names the purpose in the error ("KV cache")
  /// Errors: kResource with the MiB needed.
  static Result<AlignedBuffer> allocate(std::uint64_t count, std::string_view what) {
    const auto bytes = (CheckedSize(count) * sizeof(T)).value();
    if (!bytes) return detail::out_of_memory(UINT64_MAX, what);
    AlignedBuffer buffer;
    if (count == 0) return buffer;
    buffer.data_ = static_cast<T*>(detail::allocate_zeroed(static_cast<std::size_t>(*bytes)));
    if (buffer.data_ == nullptr) return detail::out_of_memory(*bytes, what);
    buffer.size_ = static_cast<std::size_t>(count);
    return buffer;
  }

  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { detail::release(data_, size_ * sizeof(T)); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::span<T> span() { return {data_, size_}; }
  std::span<const T> span() const { return {data_, size_}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace llm
