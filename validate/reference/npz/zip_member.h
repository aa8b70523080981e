#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "validate/reference/npz/zip_directory.h"

namespace llm {

/// ZIP's CRC-32 of `bytes` after others whose CRC is `before` (0: none).
std::uint32_t zip_crc32(std::uint32_t before, std::span<const std::byte> bytes);

/// An error about one member, at its local header.
Error zip_member_error(ErrorCode code, const ZipEntry& entry, std::string message);

/// Unpacks one member from front to back, never further than asked for, so a deflate bomb costs
/// what its reader wants of it. Stays where it is: zlib keeps a pointer to its stream.
class ZipMemberReader {
 public:
  /// @param file, entry  must outlive the reader
  /// @pre `entry` comes from read_zip_directory(file)
  ZipMemberReader(std::span<const std::byte> file, const ZipEntry& entry);
  ~ZipMemberReader();
  ZipMemberReader(const ZipMemberReader&) = delete;
  ZipMemberReader& operator=(const ZipMemberReader&) = delete;

  /// Fills all of `out` with the next bytes. Errors: kMalformed for a damaged or short member.
  Status read(std::span<std::byte> out);
  /// Call once, last. Errors: kMalformed for more bytes than were read, a deflate stream without
  /// its end, or another CRC than the directory's.
  Status finish();

 private:
  Result<std::size_t> read_some(std::span<std::byte> out);
  Result<std::size_t> inflate_some(std::span<std::byte> out);

  const ZipEntry& entry_;
  std::span<const std::byte> packed_;  ///< not yet consumed
  z_stream stream_ = {};
  bool stream_ended_ = false;
  std::uint32_t crc_ = 0;  ///< of what was read
};

}  // namespace llm
