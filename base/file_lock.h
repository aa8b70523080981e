#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace llm {

/// An exclusive advisory lock (flock) of a file. It ends with this object, or with the process,
/// however that ends. Move-only.
class FileLock {
 public:
  enum class IfHeld : bool { kFail, kWait };
  enum class IfAbsent : bool { kNoLock, kCreate };

  /// No lock.
  FileLock() = default;
  /// Locks the file at `path`, behind symbolic links. A lock of nothing where there is no file
  /// (kNoLock), where it cannot be opened, and where its file system has no locks.
  /// @param waiting  called once before it waits for another process
  /// Errors: kIo where another process holds it (kFail), or the file cannot be created.
  static Result<FileLock> take(const std::string& path, IfHeld held,
                               IfAbsent absent = IfAbsent::kNoLock,
                               const std::function<void()>& waiting = {});
  /// Owns an open file, which it locks where nobody else does.
  static FileLock of_descriptor(int descriptor);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

  bool is_held() const { return descriptor_ >= 0; }
  /// Whether the file at `path` is the locked one: it may have been replaced.
  bool is_on(const std::string& path) const;
  void release();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  int descriptor_ = -1;
};

/// Locks an open file unless another process has. @return false: another process has it
bool lock_descriptor(int descriptor);
/// Whether `path`, its last link not followed, is the open file.
bool is_named(int descriptor, const std::string& path);

}  // namespace llm
