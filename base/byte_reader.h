#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace llm {

/// Reads little-endian values from bytes it does not own. The first failure is kept (sticky) with
/// the name and offset of the field being read; every later read returns zero. So a run of fields
/// is parsed first and ok() is tested once. Never reads outside the bytes.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  /// The next integer or float.
  template <typename T>
  requires std::is_arithmetic_v<T> T read(std::string_view field) {
    T value{};
    if (take(sizeof(T), field)) std::memcpy(&value, bytes_.data() + offset_ - sizeof(T), sizeof(T));
    return value;
  }

  /// A view of the next `size` bytes, valid as long as the underlying bytes.
  std::span<const std::byte> read_bytes(std::uint64_t size, std::string_view field) {
    if (!take(size, field)) return {};
    return bytes_.subspan(offset_ - static_cast<std::size_t>(size), static_cast<std::size_t>(size));
  }

  /// A u64 length and that many bytes, as GGUF stores strings. Longer than `cap`: an error.
  std::string_view read_string(std::uint64_t cap, std::string_view field);

  /// Latches an error about the field that was read last (unless one is latched).
  void fail(ErrorCode code, std::string_view field, std::string message);

  std::size_t offset() const { return offset_; }
  /// Where the field that was read last begins.
  std::size_t field_offset() const { return field_offset_; }
  std::size_t remaining() const { return bytes_.size() - offset_; }
  bool ok() const { return !error_.has_value(); }
  /// @pre !ok()
  const Error& error() const { return *error_; }

 private:
  bool take(std::uint64_t size, std::string_view field);

  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
  std::size_t field_offset_ = 0;
  std::optional<Error> error_;
};

}  // namespace llm
