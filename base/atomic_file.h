#ifndef LLM_BASE_ATOMIC_FILE_H_
#define LLM_BASE_ATOMIC_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace llm {

/// Writes a file so that its path only ever shows the old content or the complete new one: bytes go
/// to a temporary file in the same directory, commit() syncs it and renames it over the path.
/// Destroyed without commit(), it removes the temporary file. Move-only. Errors are kIo with the
/// system's words (no space left on device, ...), naming the path.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path);

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

  /// fsync, close, rename, fsync of the directory. Call at most once.
  Status commit();

 private:
  AtomicFile() = default;

  std::string path_;    ///< as the user named it
  std::string target_;  ///< what is replaced: path_ behind its symbolic links
  std::string temporary_;
  std::uint64_t size_ = 0;
  int descriptor_ = -1;
};

/// Writes `bytes` to `path` in one step.
Status write_file_atomically(const std::string& path, std::span<const std::byte> bytes);

}  // namespace llm

#endif  // LLM_BASE_ATOMIC_FILE_H_
