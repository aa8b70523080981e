#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_reader.h"
#include "base/result.h"
#include "engine/gguf/gguf_file.h"

namespace llm {

/// Fills a GgufFile from bytes, front to back: header, entries, tensor descriptions, then the
/// layout of the data section. Internal to engine/gguf; used once.
///
/// No recursion (nested arrays are refused), and nothing is allocated on the word of a count: each
/// is first compared with the bytes that remain over the smallest encoding of one item, and the
/// tables grow with what was really parsed.
class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> bytes) : bytes_(bytes), reader_(bytes) {}
  Result<GgufFile> run();

 private:
  friend class GgufSalvage;

  Status parse_header();
  Status check_version(std::uint32_t version);
  Status check_count(std::string_view field, std::uint64_t offset, std::uint64_t count,
                     std::uint64_t min_bytes, std::uint64_t cap);

  Status parse_entries();
  static Result<GgufEntry> parse_entry(ByteReader& reader, std::uint64_t index);
  static Result<GgufValue> parse_value(ByteReader& reader, std::string_view key);
  static Status parse_array(ByteReader& reader, std::string_view key, GgufValue& value);
  static Status walk_strings(ByteReader& reader, std::string_view key, GgufValue& value);
  Status index_entries();
  Status read_alignment();

  Status parse_tensors();
  Status check_layout();
  std::uint64_t trailing_bytes() const;
  Status check_placement(const GgufTensor& tensor) const;
  /// Where the data of the last tensor ends; nothing when an offset is absurd.
  std::optional<std::uint64_t> whole_file_bytes() const;
  Status check_overlaps() const;
  Status check_nothing_follows();

  std::span<const std::byte> bytes_;
  ByteReader reader_;
  GgufFile file_;
  std::uint64_t n_tensors_ = 0;
  std::uint64_t n_entries_ = 0;
};

/// Sorts the indices of `items` by name into `order`.
/// @return the first two of one name, in their order; nothing: names are unique
std::optional<std::pair<std::uint32_t, std::uint32_t>> order_by_name(
    const auto& items, auto name, std::vector<std::uint32_t>& order) {
  const auto name_of = [&](std::uint32_t i) { return std::string_view(items[i].*name); };
  order.resize(items.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, name_of);
  const auto twin = std::ranges::adjacent_find(order, {}, name_of);
  if (twin == order.end()) return std::nullopt;
  return std::pair(*twin, *(twin + 1));
}

/// Parses one tensor description at the reader's position: name, dims, type, offset; checks sizes
/// (docs/bad_input.md rows 29-37), not yet the offset. `index` names it while its name is unknown.
Result<GgufTensor> parse_tensor_info(ByteReader& reader, std::uint64_t index);

/// An error about a file whose first bytes are not "GGUF", with the likely cause.
Error foreign_file_error(std::span<const std::byte> bytes);

}  // namespace llm
