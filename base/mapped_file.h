#ifndef LLM_BASE_MAPPED_FILE_H_
#define LLM_BASE_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace llm {

/// A regular file, mapped read-only and private. Move-only; unmapped on destruction.
///
/// The mapping follows the inode: replacing the file by rename does not affect it. Shortening the
/// file in place makes later reads past its new end raise SIGBUS; tools turn that into an error
/// with exit code 4 (tools/common), which is why loaded weights are copies and not views.
class MappedFile {
 public:
  /// Opens and maps `path`. An empty file gives empty bytes.
  /// Errors (kIo): the system's words for open/stat/mmap; "is a directory"; "not a regular file" (a
  /// FIFO or device is never waited for). kResource where there is no address space for it.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  /// Tells the kernel that `range` (a part of bytes()) will not be read again soon, which keeps
  /// peak resident memory near one copy of the model. Reading it again is allowed and correct.
  void drop_pages(std::span<const std::byte> range) const;

  /// Whether size or modification time of the opened inode differ from those at open().
  bool changed_since_open() const;
  /// Errors: kIntegrity when changed_since_open().
  Status check_unchanged() const;

 private:
  MappedFile() = default;
  void unmap();

  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int descriptor_ = -1;
  std::int64_t modified_ns_ = 0;
};

}  // namespace llm

#endif  // LLM_BASE_MAPPED_FILE_H_
