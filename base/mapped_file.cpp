#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/aligned_buffer.h"

namespace llm {
namespace {

Error io_error(const std::string& path, std::string message) {
  return Error{.code = ErrorCode::kIo, .field = {}, .message = std::move(message), .file = path};
}

std::int64_t modified_ns(const struct stat& info) {
  return info.st_mtim.tv_sec * std::int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  MappedFile file;
  file.path_ = path;
  // O_NONBLOCK: opening a FIFO without a writer must not wait.
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor_ < 0) return io_error(path, std::strerror(errno));
  struct stat info {};
  if (::fstat(file.descriptor_, &info) != 0) return io_error(path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return io_error(path, "is a directory, need a file");
  if (!S_ISREG(info.st_mode)) return io_error(path, "not a regular file");
  file.modified_ns_ = modified_ns(info);
  file.size_ = static_cast<std::size_t>(info.st_size);
  if (file.size_ == 0) return file;
  void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, file.descriptor_, 0);
  if (data == MAP_FAILED) {
    const std::size_t size = std::exchange(file.size_, 0);
    if (errno != ENOMEM) return io_error(path, std::string("mmap: ") + std::strerror(errno));
    return in_file(detail::out_of_memory(size, "address space"), path);
  }
  file.data_ = static_cast<const std::byte*>(data);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  path_ = std::move(other.path_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  descriptor_ = std::exchange(other.descriptor_, -1);
  modified_ns_ = other.modified_ns_;
  return *this;
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::drop_pages(std::span<const std::byte> range) const {
  // Only whole pages inside the range; neighbours may still be in use.
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(range.data()) + page - 1) & ~(page - 1);
  const auto end = (reinterpret_cast<std::uintptr_t>(range.data()) + range.size()) & ~(page - 1);
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

bool MappedFile::changed_since_open() const {
  struct stat info {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &info) != 0) return true;
  return static_cast<std::size_t>(info.st_size) != size_ || modified_ns(info) != modified_ns_;
}

Status MappedFile::check_unchanged() const {
  if (!changed_since_open()) return Ok{};
  return Error{.code = ErrorCode::kIntegrity,
               .field = {},
               .message = "model changed while it was read, need a file at rest",
               .file = path_};
}

void MappedFile::unmap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (descriptor_ >= 0) ::close(descriptor_);
  data_ = nullptr;
  descriptor_ = -1;
}

}  // namespace llm
