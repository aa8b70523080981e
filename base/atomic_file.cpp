#include "base/atomic_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace llm {
namespace {

/// The temporary files that have a name. A signal handler reads it, so nothing here allocates or
/// locks. More files than places are possible; those beyond stay behind when a signal ends the
/// process.
struct Listed {
  enum State : int { kFree, kChanging, kInUse };
  std::atomic<int> state{kFree};
  std::array<char, PATH_MAX> name;
};
std::array<Listed, 16> listed_files;

int list(const std::string& name) {
  if (name.size() >= PATH_MAX) return -1;
  for (std::size_t i = 0; i < listed_files.size(); ++i) {
    int expected = Listed::kFree;
    if (!listed_files[i].state.compare_exchange_strong(expected, Listed::kChanging)) continue;
    std::memcpy(listed_files[i].name.data(), name.c_str(), name.size() + 1);
    listed_files[i].state = Listed::kInUse;
    return static_cast<int>(i);
  }
  return -1;
}

void unlist(int& place) {
  if (place >= 0) listed_files[static_cast<std::size_t>(place)].state = Listed::kFree;
  place = -1;
}

Error io_error(const std::string& path, const char* action) {
  return in_file(Error{ErrorCode::kIo, {}, std::string(action) + ": " + std::strerror(errno)},
                 path);
}

// Plain pwrite until all is written; regular files may still return short on signals or a full
// disk.
bool write_fully(int descriptor, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    offset += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

std::string directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// A way to name an open file without a name. Needs /proc.
std::string name_of_descriptor(int descriptor) {
  return fmt::format("/proc/self/fd/{}", descriptor);
}

/// The n-th name to try beside `target`.
std::string temporary_name(const std::string& target, unsigned n) {
  return fmt::format("{}.tmp.{}.{}", target, ::getpid(), n);
}

/// Calls `make` with names beside `target` until one is not taken. @return that name, listed at
/// `place`; empty on an error (errno)
template <typename Make>
std::string with_free_name(const std::string& target, int& place, const Make& make) {
  static std::atomic<unsigned> next{0};
  while (true) {
    std::string name = temporary_name(target, next++);
    place = list(name);
    if (make(name.c_str())) return name;
    unlist(place);
    if (errno != EEXIST) return {};
  }
}

}  // namespace

void remove_temporary_files() noexcept {
  for (const Listed& file : listed_files) {
    if (file.state == Listed::kInUse) ::unlink(file.name.data());
  }
}

Result<AtomicFile> AtomicFile::create(const std::string& path, Unnamed unnamed, Target target) {
  const bool follows = target == Target::kFollow;
  AtomicFile file;
  file.path_ = file.target_ = path;
  // Through a symbolic link the file itself is replaced, not the link.
  std::error_code unresolved;
  const auto resolved = std::filesystem::canonical(path, unresolved);
  if (follows && !unresolved) file.target_ = resolved.string();
  struct stat old {};
  const bool exists = (follows ? ::stat : ::lstat)(path.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) {
    if (!follows) {
      return in_file(Error{ErrorCode::kIo, {}, "not a regular file, which alone is replaced"},
                     path);
    }
    // A rename would replace the device or pipe itself; write to it in place instead.
    file.in_place_ = true;
    file.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.descriptor_ < 0) return io_error(path, "cannot open for writing");
    return file;
  }
  const mode_t mode = follows ? 0666 : 0644;  // less the umask
  if (unnamed == Unnamed::kIfPossible) {
    file.descriptor_ =
        ::open(directory_of(file.target_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  }
  if (file.descriptor_ >= 0 &&
      ::access(name_of_descriptor(file.descriptor_).c_str(), F_OK) != 0) {  // commit() needs it
    ::close(std::exchange(file.descriptor_, -1));
  }
  if (file.descriptor_ < 0) {
    file.temporary_ = with_free_name(file.target_, file.listed_, [&](const char* name) {
      file.descriptor_ = ::open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode);
      return file.descriptor_ >= 0;
    });
  }
  if (file.descriptor_ < 0) return io_error(path, "cannot create");
  if (exists && follows) ::fchmod(file.descriptor_, old.st_mode & 07777);
  return file;
}

Status AtomicFile::probe(const std::string& path) {
  struct stat old {};
  if (::stat(path.c_str(), &old) == 0 && !S_ISREG(old.st_mode) && !S_ISDIR(old.st_mode)) {
    if (::access(path.c_str(), W_OK) != 0) return io_error(path, "cannot open for writing");
    return Ok{};
  }
  LLM_RETURN_IF_ERROR(create(path));
  return Ok{};
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      listed_(std::exchange(other.listed_, -1)),
      size_(other.size_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      in_place_(other.in_place_) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  unlist(listed_);
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  LLM_RETURN_IF_ERROR(write_at(size_, bytes));
  size_ += bytes.size();
  return Ok{};
}

Status AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (!in_place_) {
    if (!write_fully(descriptor_, bytes, offset)) return io_error(path_, "cannot write");
    return Ok{};
  }
  if (offset != size_) {
    errno = ESPIPE;
    return io_error(path_, "cannot write at an earlier offset");
  }
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return io_error(path_, "cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return Ok{};
}

Status AtomicFile::commit() {
  if (in_place_) return Ok{};
  if (::fsync(descriptor_) != 0) return io_error(path_, "cannot sync");
  if (temporary_.empty()) {
    // linkat() replaces nothing, so the file gets a name of its own first.
    const std::string unnamed = name_of_descriptor(descriptor_);
    temporary_ = with_free_name(target_, listed_, [&](const char* name) {
      return ::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
    });
    if (temporary_.empty()) return io_error(path_, "cannot link");
  }
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) return io_error(path_, "cannot close");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return io_error(path_, "cannot rename");
  temporary_.clear();
  unlist(listed_);
  const int directory = ::open(directory_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
  return Ok{};
}

Status write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  LLM_TRY(AtomicFile file, AtomicFile::create(path));
  LLM_RETURN_IF_ERROR(file.write(bytes));
  return file.commit();
}

}  // namespace llm
