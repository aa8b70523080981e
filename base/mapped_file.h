#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_region.h"
#include "base/result.h"

namespace llm {

/// A regular file, mapped read-only and private, from 2 MiB on beginning with a huge page's
/// address. Move-only; unmapped on destruction.
///
/// The mapping follows the inode: replacing the file by rename does not affect it. Shortening the
/// file in place makes later reads past its new end raise SIGBUS. Each part is a MappedRegion:
/// tools end with exit code 4 and its name, and a server reads zeros and asks check_unchanged()
/// before it gives out what it made of them (tools/common/signals.h). Whoever reads a mapping asks
/// after the last read.
class MappedFile {
 public:
  /// Who may have written what is opened. kOwner: this user or root alone, as far as owner and mode
  /// say; the path itself is no symbolic link.
  enum class Writer : bool { kAnybody, kOwner };
  /// Opens and maps `path`. An empty file gives empty bytes.
  /// Errors (kIo): the system's words for open/stat/mmap; "is a directory"; "not a regular file" (a
  /// FIFO or device is never waited for). kResource where there is no address space for it.
  /// kIntegrity for another Writer.
  static Result<MappedFile> open(const std::string& path, Writer writer = Writer::kAnybody);

  /// One of the files that bytes() consists of.
  struct Part {
    std::string path;
    std::span<const std::byte> bytes;
  };
  /// Several files as one: each is mapped after the one before it, from a page's beginning on,
  /// with zeros up to there. Errors: those of open(), naming the file. @pre !paths.empty()
  static Result<MappedFile> open_all(std::span<const std::string> paths);
  /// The files, in order; one for open().
  const std::vector<Part>& parts() const { return parts_; }
  /// The part that holds `position`, which points into bytes() or to its end.
  const Part& part_at(const std::byte* position) const;
  /// Bytes on disk of all parts.
  std::uint64_t file_bytes() const;

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Of the first part.
  const std::string& path() const { return parts_.front().path; }

  /// Copies `range`, which lies in one part, as read() gives it: no page of the mapping is touched,
  /// and a file that has become shorter is an error and no signal. Any thread may call it.
  /// Errors (kIo): the system's words; fewer bytes than at open(). @pre out.size() == range.size()
  Status read(std::span<const std::byte> range, std::span<std::byte> out) const;

  /// Tells the kernel that `range` (a part of bytes()) will not be read again soon, which keeps
  /// peak resident memory near one copy of the model. Reading it again is allowed and correct.
  void drop_pages(std::span<const std::byte> range) const;

  /// Asks the kernel to keep the file in huge pages where it can, when it next reads it.
  void prefer_huge_pages() const;

  /// What the system says of a file without reading it. Another one under the same path, or other
  /// content, has another stamp, unless someone went back in time.
  struct Stamp {
    std::size_t size = 0;
    std::int64_t modified_ns = 0;  ///< content
    std::int64_t changed_ns = 0;   ///< content, name, mode or owner
    std::uint64_t inode = 0;
  };
  /// Of each part, as it was at open().
  std::vector<Stamp> stamps() const;

  /// Waits until a write would give each part another stamp than it has, 20 ms at most: clocks of
  /// file systems tick up to every 10 ms.
  void wait_for_another_stamp() const;

  /// Whether size or modification time of an opened inode differ from those at open(), or zeros
  /// were read in place of what a part has lost. Cost: a system call for each part.
  bool changed_since_open() const;
  /// Errors: kIntegrity when changed_since_open(). @param what  that file is, for the message
  Status check_unchanged(std::string_view what = "model") const;

 private:
  struct Inode {
    int descriptor = -1;
    Stamp stamp;
    MappedRegion region = {};
  };

  MappedFile() = default;
  Status add(const std::string& path, Writer writer);
  Status map();
  /// The first part whose inode has changed.
  const Part* changed_part() const;
  void unmap();

  std::vector<Part> parts_;
  std::vector<Inode> inodes_;  // of the parts
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace llm
