#include "base/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

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

bool read_fully(int descriptor, std::span<std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = ::pread(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    offset += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

/// rename() that replaces nothing (EEXIST), as far as the file system can.
bool rename_to_new(const char* from, const char* to) {
  if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  if (::access(to, F_OK) == 0) {
    errno = EEXIST;
    return false;
  }
  return ::rename(from, to) == 0;
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

constexpr std::string_view kTemporary = ".llm.tmp.";

/// The n-th name to try beside `target`.
std::string temporary_name(const std::string& target, unsigned n) {
  return fmt::format("{}{}{}.{}", target, kTemporary, ::getpid(), n);
}

bool is_temporary_of(std::string_view target, std::string_view name) {
  if (!name.starts_with(target) || !name.substr(target.size()).starts_with(kTemporary))
    return false;
  const std::string_view numbers = name.substr(target.size() + kTemporary.size());
  return !numbers.empty() && numbers.find_first_not_of("0123456789.") == numbers.npos;
}

/// Removes a temporary file unless a process has it, or it is another user's.
void remove_if_dead(const std::string& path) {
  struct stat status {};
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  const bool is_ours =
      ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == ::geteuid();
  if (is_ours && ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && is_named(descriptor, path))
    ::unlink(path.c_str());
  ::close(descriptor);
}

/// What killed processes have left of `target`. By readdir(): libstdc++'s iterator ends the process
/// where memory runs out.
void remove_dead_temporaries(const std::string& target) {
  const std::string folder = directory_of(target);
  const std::string name = target.substr(target.rfind('/') + 1);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  if (!entries) return;
  while (const dirent* entry = ::readdir(entries.get()))
    if (is_temporary_of(name, entry->d_name)) remove_if_dead(folder + "/" + entry->d_name);
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

Status AtomicFile::claim(bool exists) {
  replaces_ = exists;
  if (!exists) return Ok{};
  if (held_ == nullptr || !held_->is_held()) {
    LLM_TRY(replaced_, FileLock::take(target_, FileLock::IfHeld::kFail));
    return Ok{};
  }
  if (held_->is_on(target_)) return Ok{};
  return in_file(Error{ErrorCode::kIo,
                       {},
                       "found a different file from the one that was opened, need the same file"},
                 path_);
}

void AtomicFile::open_temporary(Unnamed unnamed, unsigned mode) {
  if (unnamed == Unnamed::kIfPossible)
    descriptor_ =
        ::open(directory_of(target_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, mode_t{mode});
  if (descriptor_ >= 0 &&
      ::access(name_of_descriptor(descriptor_).c_str(), F_OK) != 0) {  // commit() needs it
    ::close(std::exchange(descriptor_, -1));
  }
  if (descriptor_ >= 0) {
    lock_descriptor(descriptor_);
    return;
  }
  do {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    unlist(listed_);
    temporary_ = with_free_name(target_, listed_, [&](const char* name) {
      descriptor_ = ::open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, mode_t{mode});
      return descriptor_ >= 0;
    });
    // Between the two calls another process may have taken it for a dead one's.
  } while (descriptor_ >= 0 &&
           (!lock_descriptor(descriptor_) || !is_named(descriptor_, temporary_)));
}

Result<AtomicFile> AtomicFile::create(const std::string& path, Unnamed unnamed, Target target,
                                      FileLock* held) {
  const bool follows = target == Target::kFollow;
  AtomicFile file;
  file.path_ = file.target_ = path;
  file.held_ = held;
  // Through a symbolic link the file itself is replaced, not the link.
  std::error_code unresolved;
  const auto resolved = std::filesystem::canonical(path, unresolved);
  if (follows && !unresolved) file.target_ = resolved.string();
  struct stat old {};
  const bool exists = (follows ? ::stat : ::lstat)(path.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) {
    if (!follows) {
      return in_file(
          Error{ErrorCode::kIo, {}, "not a regular file; only regular files are replaced"}, path);
    }
    // A rename would replace the device or pipe itself; write to it in place instead.
    file.in_place_ = true;
    file.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.descriptor_ < 0) return io_error(path, "cannot open for writing");
    return file;
  }
  LLM_RETURN_IF_ERROR(file.claim(exists));
  remove_dead_temporaries(file.target_);
  file.open_temporary(unnamed, follows ? 0666 : 0644);  // less the umask
  if (file.descriptor_ < 0) return io_error(path, "cannot create");
  if (exists && follows) ::fchmod(file.descriptor_, old.st_mode & 07777);
  return file;
}

Status AtomicFile::probe(const std::string& path, FileLock* held) {
  struct stat old {};
  if (::stat(path.c_str(), &old) == 0 && !S_ISREG(old.st_mode) && !S_ISDIR(old.st_mode)) {
    if (::access(path.c_str(), W_OK) != 0) return io_error(path, "cannot open for writing");
    return Ok{};
  }
  LLM_RETURN_IF_ERROR(create(path, Unnamed::kIfPossible, Target::kFollow, held));
  return Ok{};
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      listed_(std::exchange(other.listed_, -1)),
      replaced_(std::move(other.replaced_)),
      held_(other.held_),
      replaces_(other.replaces_),
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

bool AtomicFile::has_same_bytes(const std::string& path) const {
  const int other = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (other < 0) return false;
  struct stat status {};
  bool same = ::fstat(other, &status) == 0 && S_ISREG(status.st_mode) &&
              std::cmp_equal(status.st_size, size_);
  std::vector<std::byte> ours(std::size_t{1} << 20);
  std::vector<std::byte> theirs(ours.size());
  for (std::uint64_t at = 0; same && at < size_; at += ours.size()) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(ours.size(), size_ - at));
    same = read_fully(descriptor_, std::span(ours).first(count), at) &&
           read_fully(other, std::span(theirs).first(count), at) &&
           std::memcmp(ours.data(), theirs.data(), count) == 0;
  }
  ::close(other);
  return same;
}

Status AtomicFile::place() {
  const std::string unnamed = name_of_descriptor(descriptor_);
  const auto link_to = [&](const char* name) {
    return ::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
  };
  const bool replaces = replaces_ && (!replaced_.is_held() || replaced_.is_on(target_));
  bool is_placed = false;
  if (temporary_.empty() && !replaces) {
    is_placed = link_to(target_.c_str());
  } else {
    // linkat() replaces nothing, so the file gets a name of its own first.
    if (temporary_.empty()) temporary_ = with_free_name(target_, listed_, link_to);
    if (temporary_.empty()) return io_error(path_, "cannot link");
    is_placed = replaces ? ::rename(temporary_.c_str(), target_.c_str()) == 0
                         : rename_to_new(temporary_.c_str(), target_.c_str());
    if (is_placed) temporary_.clear();
  }
  if (is_placed) return Ok{};
  if (replaces || errno != EEXIST) return io_error(path_, "cannot rename");
  if (has_same_bytes(target_)) return Ok{};
  return in_file(
      Error{
          ErrorCode::kIo, {}, "found a file that another program has written meanwhile, need none"},
      path_);
}

Status AtomicFile::commit() {
  if (in_place_) return Ok{};
  if (::fsync(descriptor_) != 0) return io_error(path_, "cannot sync");
  LLM_RETURN_IF_ERROR(place());
  if (temporary_.empty()) unlist(listed_);
  if (held_ != nullptr) *held_ = FileLock::of_descriptor(std::exchange(descriptor_, -1));
  const int directory = ::open(directory_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
  return Ok{};
}

Status write_file_atomically(const std::string& path, std::span<const std::byte> bytes,
                             FileLock* held) {
  LLM_TRY(AtomicFile file, AtomicFile::create(path, AtomicFile::Unnamed::kIfPossible,
                                              AtomicFile::Target::kFollow, held));
  LLM_RETURN_IF_ERROR(file.write(bytes));
  return file.commit();
}

}  // namespace llm
