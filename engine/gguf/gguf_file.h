#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf_limits.h"
#include "engine/gguf/gguf_value.h"
#include "quant/formats/block_traits.h"

namespace llm {

/// One key and its value.
struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

/// What a file says of one tensor, with sizes that were checked against the file.
struct GgufTensor {
  std::string_view name;
  WeightType type = WeightType::kF32;
  std::uint32_t n_dims = 0;
  /// GGUF's ne: dims[0] is contiguous (columns), dims[1] counts rows; absent ones are 1.
  std::array<std::uint64_t, GgufLimits::kMaxDims> dims = {1, 1, 1, 1};
  std::uint64_t n_elements = 0;
  std::uint64_t n_bytes = 0;
  std::uint64_t offset = 0;       ///< of the data, from the start of the data section
  std::uint64_t info_offset = 0;  ///< of this description, from the start of the file
};

/// A parsed GGUF (versions 2 and 3, little-endian): views into bytes it does not own, which must
/// outlive it. Numbers were checked before anything was allocated for them; no size can wrap; keys
/// and tensor names are unique; tensors lie inside the file, aligned and disjoint.
class GgufFile {
 public:
  /// Cost: O(metadata), plus sorting keys and names. Tensor data is not touched.
  /// Errors: kMalformed, or kUnsupported for what is valid GGUF but not read here (other versions,
  /// big-endian, nested arrays, other tensor types); each names field, offset, value and rule.
  static Result<GgufFile> parse(std::span<const std::byte> bytes);

  std::uint32_t version() const { return version_; }
  std::uint32_t alignment() const { return alignment_; }
  std::uint64_t file_bytes() const { return file_bytes_; }
  /// Where the data section begins; may be past the end of a file without tensors.
  std::uint64_t data_offset() const { return data_offset_; }
  /// Bytes after the last tensor and its padding (of every part of a split file). A well-made file
  /// has none.
  std::uint64_t trailing_bytes() const { return trailing_bytes_; }

  /// In file order.
  const std::deque<GgufEntry>& entries() const { return entries_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  /// The value of `key`, or nullptr. Cost: O(log n).
  const GgufValue* find(std::string_view key) const;
  /// The tensor called `name`, or nullptr. Cost: O(log n).
  const GgufTensor* find_tensor(std::string_view name) const;
  std::span<const std::byte> tensor_data(const GgufTensor& tensor) const;

  /// The same tensors under other metadata, whose bytes outlive the result. What the file's own
  /// metadata says of its layout stays. @pre keys are unique
  GgufFile with_entries(std::deque<GgufEntry> entries) const;

  // Typed getters. Each returns an error that names the key, the type found and the type expected;
  // an absent key is an error of get_* and the default of get_*_or.

  /// Any unsigned integer type.
  Result<std::uint64_t> get_unsigned(std::string_view key) const;
  Result<std::uint64_t> get_unsigned_or(std::string_view key, std::uint64_t absent) const;
  /// FLOAT32, or FLOAT64 rounded to float. May be NaN or Inf.
  Result<float> get_float(std::string_view key) const;
  Result<float> get_float_or(std::string_view key, float absent) const;
  Result<bool> get_bool_or(std::string_view key, bool absent) const;
  Result<std::string_view> get_string(std::string_view key) const;
  Result<std::string_view> get_string_or(std::string_view key, std::string_view absent) const;
  Result<GgufStrings> get_strings(std::string_view key) const;
  Result<GgufArray<float>> get_floats(std::string_view key) const;
  Result<GgufArray<std::int32_t>> get_ints(std::string_view key) const;

  /// An error about the value of `key`, with its offset where it exists.
  Error value_error(ErrorCode code, std::string_view key, std::string message) const;

 private:
  friend class GgufParser;
  friend class GgufJoiner;
  friend class GgufSalvage;
  GgufFile() = default;

  Result<const GgufValue*> require(std::string_view key, std::string_view expected) const;
  Result<const GgufValue*> require_array(std::string_view key, GgufType element) const;

  /// Sorts tensors by name. Errors: kMalformed for a name given twice.
  Status index_tensors();

  std::span<const std::byte> bytes_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t trailing_bytes_ = 0;
  std::uint32_t version_ = 0;
  std::uint32_t alignment_ = GgufLimits::kDefaultAlignment;
  std::uint64_t data_offset_ = 0;
  std::deque<GgufEntry> entries_;  // a deque grows without a second copy
  std::vector<GgufTensor> tensors_;
  // Indices in ascending order of key or name: lookup and detection of duplicates.
  std::vector<std::uint32_t> entry_order_;
  std::vector<std::uint32_t> tensor_order_;
};

}  // namespace llm
