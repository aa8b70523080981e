#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

namespace llm {

/// The type of a metadata value, with GGUF's ids.
/// Source: the GGUF specification (ggml docs/gguf.md, gguf_metadata_value_type).
enum class GgufType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

/// Ids at and above this one have no meaning.
inline constexpr std::uint32_t kGgufTypeCount = 13;

/// "UINT32", "ARRAY", ...
std::string_view gguf_type_name(GgufType type);
/// Encoded bytes of one value of a fixed-size type; 0 for STRING and ARRAY.
std::size_t gguf_fixed_size(GgufType type);

/// One metadata value as a view of its encoded bytes; nothing is copied. Valid as long as the bytes
/// that were parsed.
struct GgufValue {
  GgufType type = GgufType::kUint8;
  GgufType element_type = GgufType::kUint8;  ///< of an array's elements; otherwise equal to type
  std::uint64_t count = 1;                   ///< elements of an array; otherwise 1
  /// The number's bytes, the string's characters, or the array's elements as they are encoded
  /// (strings with their length prefixes; already checked to stay inside).
  std::span<const std::byte> bytes;
  std::uint64_t offset = 0;  ///< of `bytes` in the file

  /// "UINT32", "ARRAY of STRING".
  std::string type_name() const;
};

/// Reads a number at the start of `bytes`, whatever its alignment. @pre bytes.size() >= sizeof(T)
template <typename T>
T load_unaligned(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

/// Calls `visit` with the number that `bytes` hold as `type`, an std::uint64_t, std::int64_t,
/// float, double or bool. @pre a fixed-size type
template <typename Visitor>
auto visit_gguf_number(GgufType type, std::span<const std::byte> bytes, Visitor visit) {
  switch (type) {
    case GgufType::kUint8:
      return visit(std::uint64_t{load_unaligned<std::uint8_t>(bytes)});
    case GgufType::kUint16:
      return visit(std::uint64_t{load_unaligned<std::uint16_t>(bytes)});
    case GgufType::kUint32:
      return visit(std::uint64_t{load_unaligned<std::uint32_t>(bytes)});
    case GgufType::kUint64:
      return visit(load_unaligned<std::uint64_t>(bytes));
    case GgufType::kInt8:
      return visit(std::int64_t{load_unaligned<std::int8_t>(bytes)});
    case GgufType::kInt16:
      return visit(std::int64_t{load_unaligned<std::int16_t>(bytes)});
    case GgufType::kInt32:
      return visit(std::int64_t{load_unaligned<std::int32_t>(bytes)});
    case GgufType::kInt64:
      return visit(load_unaligned<std::int64_t>(bytes));
    case GgufType::kFloat32:
      return visit(load_unaligned<float>(bytes));
    case GgufType::kFloat64:
      return visit(load_unaligned<double>(bytes));
    default:
      return visit(bytes[0] != std::byte{0});
  }
}

/// A typed view of an array of fixed-size numbers, which may lie at any address.
template <typename T>
class GgufArray {
 public:
  GgufArray() = default;
  /// @pre bytes.size() is a multiple of sizeof(T)
  explicit GgufArray(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t size() const { return bytes_.size() / sizeof(T); }
  T operator[](std::size_t i) const {
    return load_unaligned<T>(bytes_.subspan(i * sizeof(T), sizeof(T)));
  }

 private:
  std::span<const std::byte> bytes_;
};

/// A view of an array of strings, to be walked in order: `for (std::string_view s : strings)`.
/// Gives size() strings inside the array's bytes, also where these have changed since they were
/// checked.
class GgufStrings {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::string_view*;
    using reference = std::string_view;

    Iterator(std::span<const std::byte> rest, std::size_t n_left) : rest_(rest), n_left_(n_left) {
      read();
    }
    std::string_view operator*() const { return string_; }
    Iterator& operator++() {
      --n_left_;
      read();
      return *this;
    }
    bool operator==(const Iterator& other) const { return n_left_ == other.n_left_; }
    bool operator!=(const Iterator& other) const { return n_left_ != other.n_left_; }

   private:
    /// Takes the next string from the rest. Its length is read once.
    void read() {
      std::uint64_t length = 0;
      string_ = {};
      if (n_left_ == 0 || rest_.size() < sizeof length) return;
      std::memcpy(&length, rest_.data(), sizeof length);
      rest_ = rest_.subspan(sizeof length);
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(length, rest_.size()));
      string_ = {reinterpret_cast<const char*>(rest_.data()), size};
      rest_ = rest_.subspan(size);
    }
    std::span<const std::byte> rest_;
    std::size_t n_left_;
    std::string_view string_;
  };

  GgufStrings() = default;
  /// @pre `bytes` are exactly `count` encoded strings, as the parser has checked
  GgufStrings(std::span<const std::byte> bytes, std::size_t count) : bytes_(bytes), count_(count) {}

  std::size_t size() const { return count_; }
  Iterator begin() const { return {bytes_, count_}; }
  Iterator end() const { return {{}, 0}; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t count_ = 0;
};

}  // namespace llm
