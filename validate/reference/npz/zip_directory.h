#pragma once

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

}  // namespace llm
