#include "base/byte_reader.h"

#include <fmt/core.h>

#include <bit>

namespace llm {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian and are read with memcpy");

std::string_view ByteReader::read_string(std::uint64_t cap, std::string_view field) {
  const auto length = read<std::uint64_t>(field);
  if (!ok()) return {};
  if (length > cap) {
    fail(ErrorCode::kMalformed, field,
         fmt::format("found string length {}, need at most {}", length, cap));
    return {};
  }
  const std::size_t length_offset = field_offset_;
  const auto bytes = read_bytes(length, field);
  if (ok()) field_offset_ = length_offset;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void ByteReader::fail(ErrorCode code, std::string_view field, std::string message) {
  if (error_) return;
  error_ = Error{code, std::string(field), std::move(message), field_offset_};
}

bool ByteReader::take(std::uint64_t size, std::string_view field) {
  if (error_) return false;
  field_offset_ = offset_;
  // Compare with what is left; offset_ + size could wrap.
  if (size > remaining()) {
    fail(ErrorCode::kMalformed, field,
         fmt::format("found end of file, need {} more bytes (truncated)", size - remaining()));
    return false;
  }
  offset_ += static_cast<std::size_t>(size);
  return true;
}

}  // namespace llm
