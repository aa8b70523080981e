#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "validate/reference/npz/npy.h"
#include "validate/reference/npz/zip_directory.h"

namespace llm {

/// What a reader is willing to unpack. A member above either cap is refused before any of it is
/// allocated (kResource). Activations hardly compress, so the expansion cap stops deflate bombs
/// without touching real dumps.
struct NpzLimits {
  std::uint64_t max_member_bytes = std::uint64_t{16} << 30;
  std::uint64_t free_bytes = std::uint64_t{16} << 20;  ///< always allowed, at any ratio
  std::uint64_t max_expansion = 100;  ///< uncompressed / compressed, above free_bytes
};

/// An NPZ archive (np.savez, np.savez_compressed, NpzWriter; zip64 too) opened for reading arrays
/// by key. Move-only. Nothing but the directory is read at open(); a name like "../x.npy" is only a
/// key, no file is ever created.
class NpzReader {
 public:
  /// Errors: kIo; kMalformed naming the ZIP field or member; kUnsupported for encryption and other
  /// compression; kResource beyond the limits.
  static Result<NpzReader> open(const std::string& path, const NpzLimits& limits = {});

  /// Keys in file order: member names without ".npy". Members of other names are no arrays.
  const std::vector<std::string>& keys() const { return keys_; }
  bool contains(std::string_view key) const;

  /// Inflates one member and checks its CRC. Errors: kMalformed for an absent key, a bad NPY
  /// header, a length that differs from header and directory, a bad CRC; kUnsupported for element
  /// types of no use here. Cost: one pass, memory for the array alone.
  Result<NpyArray> read(std::string_view key) const;

 private:
  NpzReader(MappedFile file, std::vector<ZipEntry> entries)
      : file_(std::move(file)), entries_(std::move(entries)) {}

  Result<NpyArray> read_member(std::size_t index) const;

  MappedFile file_;
  std::vector<ZipEntry> entries_;
  std::vector<std::string> keys_;
  std::map<std::string, std::size_t, std::less<>> index_;  ///< key -> entries_
};

/// Writes an NPZ that numpy.load reads: members stored uncompressed, one after the other, straight
/// to an atomic file, so memory holds no more than the array being added. The bytes depend on the
/// arrays only (no time stamps).
class NpzWriter {
 public:
  /// @param zip64_from  sizes and offsets from here on are written as zip64 (tests lower it)
  static Result<NpzWriter> create(const std::string& path, std::uint64_t zip64_from = 0xFFFFFFFF);

  /// Appends one array. @pre `key` was not added before, data.size() fits type and shape
  Status add(std::string_view key, NpyType type, std::span<const std::uint64_t> shape,
             std::span<const std::byte> data);
  Status add(std::string_view key, const NpyArray& array) {
    return add(key, array.type, array.shape, array.data);
  }

  /// Writes the directory and makes the file appear under its path. Call once, last.
  Status finish();

 private:
  struct Member {
    std::string name;
    std::uint32_t crc;
    std::uint64_t size;
    std::uint64_t offset;
  };

  NpzWriter(AtomicFile file, std::uint64_t zip64_from)
      : file_(std::move(file)), zip64_from_(zip64_from) {}
  Status write_end(std::uint64_t directory_offset);
  Status append(std::span<const std::byte> bytes);
  Status flush();
  std::uint64_t size() const { return file_.size() + buffer_.size(); }

  AtomicFile file_;
  std::uint64_t zip64_from_;
  std::vector<Member> members_;
  std::vector<std::byte> buffer_;  ///< small pieces wait here for one write
};

}  // namespace llm
