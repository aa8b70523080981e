#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace llm {
namespace {

Error io_error(const std::string& path, const char* action) {
  return Error{.code = ErrorCode::kIo,
               .field = {},
               .message = std::string(action) + ": " + std::strerror(errno),
               .file = path};
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

// mkstemp gives 0600; a new file should have what open() would give under the umask.
void apply_usual_mode(int descriptor, const std::string& path) {
  struct stat old {};
  if (::stat(path.c_str(), &old) == 0) {
    ::fchmod(descriptor, old.st_mode & 07777);
    return;
  }
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(descriptor, 0666 & ~mask);
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  AtomicFile file;
  // Through a symbolic link the file itself is replaced, not the link.
  std::error_code unresolved;
  const auto target = std::filesystem::canonical(path, unresolved);
  file.path_ = path;
  file.target_ = unresolved ? path : target.string();
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    // A rename would replace the device or pipe itself; write to it in place instead.
    file.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.descriptor_ < 0) return io_error(path, "cannot open for writing");
    return file;
  }
  std::string name = file.target_ + ".tmp.XXXXXX";
  std::vector<char> buffer(name.begin(), name.end());
  buffer.push_back('\0');
  file.descriptor_ = ::mkostemp(buffer.data(), O_CLOEXEC);
  if (file.descriptor_ < 0) return io_error(path, "cannot create");
  file.temporary_ = buffer.data();
  apply_usual_mode(file.descriptor_, path);
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      size_(other.size_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  LLM_RETURN_IF_ERROR(write_at(size_, bytes));
  size_ += bytes.size();
  return Ok{};
}

Status AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (!temporary_.empty()) {
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
  if (temporary_.empty()) return Ok{};
  if (::fsync(descriptor_) != 0) return io_error(path_, "cannot sync");
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) return io_error(path_, "cannot close");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return io_error(path_, "cannot rename");
  temporary_.clear();
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
