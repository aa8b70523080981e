#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/file_lock.h"
#include "base/result.h"

namespace llm {

/// Writes a file so that its path only ever shows the old content or the complete new one. Bytes go
/// to a file of the same directory that has no name yet (O_TMPFILE), or, where the file system
/// knows no such files, a temporary one; commit() syncs it and renames it over the path. Destroyed
/// without commit(), nothing is left. Move-only. Errors are kIo with the system's words (no space
/// left on device, ...), naming the path.
///
/// Two programs that write one path never lose what one of them wrote: a file that is there is
/// locked until it is replaced (FileLock), so that the second one fails in create(); one that was
/// not there, and is when commit() comes, is kept, and commit() fails unless it has the same bytes.
///
/// A temporary file is locked as long as its process lives. create() removes those of this path and
/// user that nobody holds: a killed process has left them.
class AtomicFile {
 public:
  enum class Unnamed : bool { kNever, kIfPossible };
  /// kFollow: behind symbolic links, with the old file's mode; a device or pipe is written to.
  /// kPlain: nothing but a regular file is replaced, or opened, and by one that only its owner can
  /// write to.
  enum class Target : bool { kFollow, kPlain };
  /// @param unnamed  kNever: as where the file system knows no files without a name
  /// @param held  the caller's lock, which the file that is replaced may have; of another file: the
  /// path must have no file then
  static Result<AtomicFile> create(const std::string& path, Unnamed unnamed = Unnamed::kIfPossible,
                                   Target target = Target::kFollow, FileLock* held = nullptr);
  /// Whether create() would succeed, without a trace: nothing is written, no pipe is opened.
  static Status probe(const std::string& path, FileLock* held = nullptr);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// Appends all of `bytes`.
  Status write(std::span<const std::byte> bytes);
  /// Overwrites earlier bytes at `offset`; the append position stays. An error on a device or pipe.
  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Bytes appended so far.
  std::uint64_t size() const { return size_; }

  /// fsync, rename, fsync of the directory. Call at most once.
  /// @post  create()'s `held`, where there was one, locks the new file
  Status commit();

 private:
  AtomicFile() = default;

  /// Locks the old file. Errors: kIo where somebody else has it.
  Status claim(bool exists);
  /// Sets descriptor_, to -1 on an error (errno).
  void open_temporary(Unnamed unnamed, unsigned mode);
  /// The written bytes get the path, over the old file or where there is none.
  Status place();
  bool has_same_bytes(const std::string& path) const;

  std::string path_;       ///< as the user named it
  std::string target_;     ///< what is replaced: path_ behind its symbolic links
  std::string temporary_;  ///< its name as long as it has one
  int listed_ = -1;        ///< its place in the list of remove_temporary_files()
  FileLock replaced_;      ///< of the old file, unless the caller has it
  FileLock* held_ = nullptr;
  bool replaces_ = false;  ///< there was a file at create()
  std::uint64_t size_ = 0;
  int descriptor_ = -1;
  bool in_place_ = false;  ///< a device or pipe, which is written to and not replaced
};

/// Writes `bytes` to `path` in one step. @param held  as in AtomicFile::create()
Status write_file_atomically(const std::string& path, std::span<const std::byte> bytes,
                             FileLock* held = nullptr);

/// Removes the temporary files of every AtomicFile, for a signal handler that ends the process.
/// Async-signal-safe.
void remove_temporary_files() noexcept;

}  // namespace llm
