#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace llm {

/// One member of a ZIP archive, as its central directory states it.
struct ZipEntry {
  static constexpr std::uint16_t kStored = 0;
  static constexpr std::uint16_t kDeflated = 8;
  static constexpr std::uint32_t kIn64 = 0xFFFFFFFF;  ///< "the value is in the zip64 record"
  static constexpr std::uint16_t kExtra64 = 0x0001;   ///< id of that record

  std::string name;
  std::uint16_t method = kStored;
  std::uint16_t flags = 0;
  std::uint32_t crc = 0;
  std::uint64_t compressed = 0;    ///< bytes in the file
  std::uint64_t uncompressed = 0;  ///< declared; a reader must not trust it
  std::uint64_t local_offset = 0;  ///< where its local header begins
  std::uint64_t data_offset = 0;   ///< where its compressed bytes begin
};

/// Reads the structure of a ZIP file and proves it sound before anything is inflated:
/// - the directory ends exactly where the end record says, nothing follows the archive;
/// - every local header repeats its central entry (name, method, sizes, CRC);
/// - members lie inside the file, before the directory, and share no byte; names differ.
/// So a byte of the file belongs to at most one member, and the sum of compressed sizes is bounded
/// by the file. Zip64 and data descriptors (flag 3) are understood; one disk only.
///
/// Errors: kMalformed naming the ZIP field or member with its offset; kUnsupported for encryption
/// and methods other than stored and deflate. Cost: O(members log members), no bytes of data read.
/// Source: PKWARE APPNOTE 6.3.10, sections 4.3 to 4.5.
Result<std::vector<ZipEntry>> read_zip_directory(std::span<const std::byte> file);

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
