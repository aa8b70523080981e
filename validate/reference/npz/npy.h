#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llm {

/// Element types that are read and written. Everything else NPY can hold is refused by name.
enum class NpyType { kF16, kF32, kF64, kI32, kI64, kU8 };

std::size_t npy_type_size(NpyType type);
/// "f2", "f4", "f8", "i4", "i8", "u1": NumPy's names.
std::string_view npy_type_name(NpyType type);

/// An array in memory: C order (last index contiguous), this machine's byte order.
struct NpyArray {
  NpyType type = NpyType::kF32;
  std::vector<std::uint64_t> shape;  ///< empty: a scalar
  std::vector<std::byte> data;       ///< count() * npy_type_size(type) bytes

  std::uint64_t count() const;
  /// All elements as f32. Of f2, f4 and f8 (rounded to nearest); integers are kMalformed.
  Result<std::vector<float>> as_f32() const;
  /// All elements as i64. Of u1, i4 and i8; floats are kMalformed.
  Result<std::vector<std::int64_t>> as_i64() const;
};

/// What the header of an NPY stream states.
struct NpyHeader {
  NpyType type = NpyType::kF32;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::uint64_t> shape;
  std::uint64_t data_bytes = 0;  ///< checked product of shape and element size
};

/// The first bytes of every NPY stream: enough to learn how long its header is.
inline constexpr std::size_t kNpyPrefixBytes = 12;
/// Longest header text that is accepted. NumPy itself refuses 10,000 and more.
inline constexpr std::size_t kNpyMaxHeaderBytes = 10000;

/// Bytes before the data (magic, version, length, text), from the first kNpyPrefixBytes bytes.
/// Errors name `member`: kMalformed for bad magic, version or length.
Result<std::size_t> npy_header_bytes(std::span<const std::byte> prefix, std::string_view member);

/// Parses the npy_header_bytes() first bytes. The text must be the plain dictionary
/// {'descr': str, 'fortran_order': bool, 'shape': tuple of int}; it is never evaluated.
/// Errors name `member` and the key: kMalformed, or kUnsupported for an element type that is valid
/// NPY but not read here (objects, structures, complex, strings, other integers).
/// Source: NEP 1 and numpy/lib/format.py (versions 1.0, 2.0, 3.0).
Result<NpyHeader> parse_npy_header(std::span<const std::byte> header, std::string_view member);

/// Puts the header's data (exactly data_bytes) into this machine's byte order and C order.
NpyArray to_npy_array(const NpyHeader& header, std::vector<std::byte> data);

/// A version 1.0 header, padded so that the data begins at a multiple of 64 bytes.
std::string encode_npy_header(NpyType type, std::span<const std::uint64_t> shape);

}  // namespace llm
