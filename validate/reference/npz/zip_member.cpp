#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "validate/reference/npz/zip_directory.h"

namespace llm {
namespace {

/// zlib counts in 32 bits.
constexpr std::size_t kMostAtOnce = std::numeric_limits<uInt>::max();

}  // namespace

std::uint32_t zip_crc32(std::uint32_t before, std::span<const std::byte> bytes) {
  if (bytes.empty()) return before;  // zlib takes a null pointer for a request to start anew
  const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
  return static_cast<std::uint32_t>(crc32_z(before, data, bytes.size()));
}

Error zip_member_error(ErrorCode code, const ZipEntry& entry, std::string message) {
  return Error{code, entry.name, std::move(message), entry.local_offset};
}

ZipMemberReader::ZipMemberReader(std::span<const std::byte> file, const ZipEntry& entry)
    : entry_(entry),
      packed_(file.subspan(static_cast<std::size_t>(entry.data_offset),
                           static_cast<std::size_t>(entry.compressed))) {
  if (entry.method != ZipEntry::kDeflated) return;
  // Negative: no zlib header around the deflate stream. Fails for want of memory only.
  if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
}

ZipMemberReader::~ZipMemberReader() {
  if (entry_.method == ZipEntry::kDeflated) inflateEnd(&stream_);
}

Result<std::size_t> ZipMemberReader::inflate_some(std::span<std::byte> out) {
  if (stream_ended_) return std::size_t{0};
  const std::size_t given = std::min(packed_.size(), kMostAtOnce);
  const std::size_t room = std::min(out.size(), kMostAtOnce);
  // zlib does not write to its input.
  stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed_.data()));
  stream_.avail_in = static_cast<uInt>(given);
  stream_.next_out = reinterpret_cast<Bytef*>(out.data());
  stream_.avail_out = static_cast<uInt>(room);
  const int code = inflate(&stream_, Z_NO_FLUSH);
  packed_ = packed_.subspan(given - stream_.avail_in);
  stream_ended_ = code == Z_STREAM_END;
  // Z_BUF_ERROR: the input ends before the stream does.
  if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
    return zip_member_error(
        ErrorCode::kMalformed, entry_,
        fmt::format("cannot be unpacked: {}", stream_.msg == nullptr ? "bad stream" : stream_.msg));
  }
  return room - stream_.avail_out;
}

Result<std::size_t> ZipMemberReader::read_some(std::span<std::byte> out) {
  if (entry_.method == ZipEntry::kDeflated) return inflate_some(out);
  const std::size_t count = std::min(out.size(), packed_.size());
  std::memcpy(out.data(), packed_.data(), count);
  packed_ = packed_.subspan(count);
  return count;
}

Status ZipMemberReader::read(std::span<std::byte> out) {
  while (!out.empty()) {
    LLM_TRY(const std::size_t count, read_some(out));
    if (count == 0)
      return zip_member_error(ErrorCode::kMalformed, entry_, "ends before its declared size");
    crc_ = zip_crc32(crc_, out.first(count));
    out = out.subspan(count);
  }
  return Ok{};
}

Status ZipMemberReader::finish() {
  std::byte extra{};
  LLM_TRY(const std::size_t more, read_some({&extra, 1}));
  if (more != 0 || !packed_.empty())
    return zip_member_error(ErrorCode::kMalformed, entry_, "longer than its declared size");
  if (entry_.method == ZipEntry::kDeflated && !stream_ended_)
    return zip_member_error(ErrorCode::kMalformed, entry_, "cannot be unpacked: cut off");
  if (crc_ != entry_.crc)
    return zip_member_error(ErrorCode::kMalformed, entry_, "bad CRC: the content is damaged");
  return Ok{};
}

}  // namespace llm
