#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace llm {
namespace {

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// flock(), to its end. @return 0 or the error's number
int flock_fully(int descriptor, int operation) {
  while (::flock(descriptor, operation) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

/// For writing where that is allowed, since a lock of NFS needs it.
int open_for_lock(const std::string& path, int flags) {
  const int both = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | flags, 0644);
  if (both >= 0 || errno == ENOENT) return both;
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

}  // namespace

bool lock_descriptor(int descriptor) {
  return flock_fully(descriptor, LOCK_EX | LOCK_NB) != EWOULDBLOCK;
}

bool is_named(int descriptor, const std::string& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(descriptor, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         same_file(open, named);
}

Result<FileLock> FileLock::take(const std::string& path, IfHeld held, IfAbsent absent,
                                const std::function<void()>& waiting) {
  const bool creates = absent == IfAbsent::kCreate;
  while (true) {
    FileLock lock(open_for_lock(path, creates ? O_CREAT : 0));
    if (!lock.is_held()) {
      if (!creates) return FileLock();
      return in_file(Error{ErrorCode::kIo, "", std::strerror(errno)}, path);
    }
    int failure = flock_fully(lock.descriptor_, LOCK_EX | LOCK_NB);
    if (failure == EWOULDBLOCK && held == IfHeld::kFail) {
      return in_file(
          Error{ErrorCode::kIo, "", "found another process that writes it, need one at a time"},
          path);
    }
    if (failure == EWOULDBLOCK) {
      if (waiting) waiting();
      failure = flock_fully(lock.descriptor_, LOCK_EX);
    }
    if (failure != 0) return FileLock();
    // Who held it may have replaced the file, or removed it.
    if (lock.is_on(path)) return lock;
  }
}

FileLock FileLock::of_descriptor(int descriptor) {
  lock_descriptor(descriptor);
  return FileLock(descriptor);
}

FileLock::FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  if (this == &other) return *this;
  release();
  descriptor_ = std::exchange(other.descriptor_, -1);
  return *this;
}

FileLock::~FileLock() { release(); }

bool FileLock::is_on(const std::string& path) const {
  struct stat open {};
  struct stat named {};
  return is_held() && ::fstat(descriptor_, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         same_file(open, named);
}

void FileLock::release() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

}  // namespace llm
