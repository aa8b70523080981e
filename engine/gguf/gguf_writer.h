#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_value.h"
#include "quant/formats/block_traits.h"

namespace llm {

/// GGUF's type of a C++ number or bool.
template <typename T>
constexpr GgufType gguf_type_of() {
  static_assert(std::is_arithmetic_v<T>);
  if constexpr (std::is_same_v<T, bool>) return GgufType::kBool;
  if constexpr (std::is_same_v<T, float>) return GgufType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return GgufType::kFloat64;
  constexpr bool kSigned = std::is_signed_v<T>;
  if constexpr (sizeof(T) == 1) return kSigned ? GgufType::kInt8 : GgufType::kUint8;
  if constexpr (sizeof(T) == 2) return kSigned ? GgufType::kInt16 : GgufType::kUint16;
  if constexpr (sizeof(T) == 4) return kSigned ? GgufType::kInt32 : GgufType::kUint32;
  return kSigned ? GgufType::kInt64 : GgufType::kUint64;
}

/// What stands in a GGUF before its tensor data: metadata and tensor descriptions, in the order of
/// the calls. The data itself is streamed by GgufStream, so memory stays at the size of the header.
/// The same calls give the same bytes. Writes version 3.
///
///   GgufWriter writer;
///   writer.add_string("general.architecture", "llama");
///   writer.add_number<std::uint32_t>("llama.block_count", 2);
///   writer.add_tensor("token_embd.weight", WeightType::kF16, {{64, 512}});
///   GgufStream stream(writer, [&](auto bytes) { return file.write(bytes); });
///   LLM_RETURN_IF_ERROR(stream.begin());
///   LLM_RETURN_IF_ERROR(stream.write(embedding_bytes));  // in the order of add_tensor()
///   LLM_RETURN_IF_ERROR(stream.finish());
class GgufWriter {
 public:
  /// @param alignment  of tensor data; when not 32, general.alignment is written first
  /// @pre a power of two between GgufLimits::kMinAlignment and kMaxAlignment
  explicit GgufWriter(std::uint32_t alignment = GgufLimits::kDefaultAlignment);

  template <typename T>
  void add_number(std::string_view key, T value) {
    begin_entry(key, gguf_type_of<T>());
    append(&value, sizeof(T));
  }
  void add_string(std::string_view key, std::string_view value);
  template <typename T>
  void add_numbers(std::string_view key, std::span<const T> values) {
    begin_array(key, gguf_type_of<T>(), values.size());
    append(values.data(), values.size_bytes());
  }
  void add_strings(std::string_view key, std::span<const std::string> values);
  /// Copies an entry of a parsed file. general.alignment is left out: it is this writer's own.
  void add_entry(const GgufEntry& entry);

  /// @param dims  GGUF's ne: columns first
  void add_tensor(std::string_view name, WeightType type, std::span<const std::uint64_t> dims);

  /// Everything up to the data section, padded. Errors (kMalformed): what GgufFile::parse would
  /// refuse of keys, names and dims.
  Result<std::vector<std::byte>> header() const;

  std::uint32_t alignment() const { return alignment_; }
  /// Bytes of each tensor's data, in order.
  std::span<const std::uint64_t> tensor_bytes() const { return tensor_bytes_; }

 private:
  void begin_entry(std::string_view key, GgufType type);
  void begin_array(std::string_view key, GgufType element, std::uint64_t count);
  void append(const void* data, std::size_t size);
  void append_string(std::string_view text);
  void fail(std::string_view field, std::string message);

  std::uint32_t alignment_;
  std::uint64_t n_entries_ = 0;
  std::vector<std::byte> entries_;       // encoded
  std::vector<std::byte> tensor_infos_;  // encoded
  std::vector<std::uint64_t> tensor_bytes_;
  std::uint64_t next_offset_ = 0;
  std::vector<std::string> keys_;
  std::vector<std::string> names_;
  std::optional<Error> error_;  // the first; reported by header()
};

/// Takes the next bytes of the file.
using ByteSink = std::function<Status(std::span<const std::byte>)>;

/// Writes a whole GGUF front to back: the header, then the data of each tensor in any number of
/// pieces, with padding put in between and at the end.
class GgufStream {
 public:
  /// @param writer  complete; must outlive this
  GgufStream(const GgufWriter& writer, ByteSink sink) : writer_(writer), sink_(std::move(sink)) {}

  Status begin();
  /// The next bytes of tensor data. A call never spans two tensors.
  /// @pre begin() has succeeded, and the bytes fit what is left of the current tensor
  Status write(std::span<const std::byte> bytes);
  /// @pre every tensor is complete
  Status finish() const;

 private:
  Status pad();

  const GgufWriter& writer_;
  ByteSink sink_;
  std::size_t tensor_ = 0;     // the one being written
  std::uint64_t written_ = 0;  // of its bytes
};

/// Appends to a vector: `GgufStream stream(writer, sink_to(bytes));`
ByteSink sink_to(std::vector<std::byte>& bytes);

}  // namespace llm
