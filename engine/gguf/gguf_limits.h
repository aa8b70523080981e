#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace llm {

/// What a GGUF may hold here. The first group is the format's own, the second is ours: far above
/// every real model, and low enough that a hostile file cannot cost memory or time.
/// Source of the first group: the GGUF specification (ggml docs/gguf.md).
struct GgufLimits {
  static constexpr std::uint64_t kHeaderBytes = 24;
  static constexpr std::uint32_t kDefaultAlignment = 32;
  static constexpr std::uint32_t kMinAlignment = 8;
  static constexpr std::uint64_t kMaxKeyBytes = 65535;
  static constexpr std::uint64_t kMaxTensorNameBytes = 63;
  static constexpr std::uint32_t kMaxDims = 4;
  /// Key length, one character, type, one byte of value.
  static constexpr std::uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
  /// Name length, one character, n_dims, one dim, type, offset.
  static constexpr std::uint64_t kMinTensorInfoBytes = 8 + 1 + 4 + 8 + 4 + 8;
  /// Dims, and with them element counts, must stay representable as signed numbers.
  static constexpr std::uint64_t kMaxElements = INT64_MAX;

  static constexpr std::uint32_t kMaxAlignment = 1U << 20;
  static constexpr std::uint64_t kMaxEntries = 1U << 20;
  static constexpr std::uint64_t kMaxTensors = 1U << 20;
  static constexpr std::uint64_t kMaxStringBytes = 16U << 20;
  /// A string array of this many empty strings makes 32 MiB of the file resident.
  static constexpr std::uint64_t kMaxArrayElements = 4U << 20;
  static constexpr std::uint64_t kMaxParts = 65535;  ///< of a split model: split.no is a UINT16
};

/// Whether a name has the characters that keys and names of tensors may have.
inline bool is_printable_ascii(std::string_view name) {
  return std::ranges::all_of(name, [](char c) { return c >= 0x20 && c < 0x7F; });
}

}  // namespace llm
