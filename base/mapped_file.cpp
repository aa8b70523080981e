#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/aligned_buffer.h"

namespace llm {
namespace {

Error io_error(const std::string& path, std::string message) {
  return in_file(Error{ErrorCode::kIo, {}, std::move(message)}, path);
}

std::int64_t nanoseconds(const struct timespec& time) {
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

/// That only this user and root can have written it.
Status check_writer(const std::string& path, const struct stat& info) {
  const auto refuse = [&](std::string message) {
    return Error{
        .code = ErrorCode::kIntegrity, .field = {}, .message = std::move(message), .file = path};
  };
  if (info.st_uid != 0 && info.st_uid != ::geteuid())
    return refuse(
        fmt::format("found owner {}, need this user ({}) or root", info.st_uid, ::geteuid()));
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return refuse(fmt::format("found mode {:04o}, need one that only the owner can write to",
                              info.st_mode & 07777));
  return Ok{};
}

std::size_t round_up_to_page(std::size_t size) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (size + page - 1) / page * page;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path, Writer writer) {
  MappedFile file;
  LLM_RETURN_IF_ERROR(file.add(path, writer));
  LLM_RETURN_IF_ERROR(file.map());
  return file;
}

Result<MappedFile> MappedFile::open_all(std::span<const std::string> paths) {
  MappedFile file;
  for (const std::string& path : paths) LLM_RETURN_IF_ERROR(file.add(path, Writer::kAnybody));
  LLM_RETURN_IF_ERROR(file.map());
  return file;
}

Status MappedFile::add(const std::string& path, Writer writer) {
  parts_.push_back({path, {}});
  Inode& inode = inodes_.emplace_back();
  // O_NONBLOCK: opening a FIFO without a writer must not wait.
  const int links = writer == Writer::kOwner ? O_NOFOLLOW : 0;
  inode.descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | links);
  if (inode.descriptor < 0 && errno == ELOOP && links != 0)
    return io_error(path, "is a symbolic link, need the file itself");
  if (inode.descriptor < 0) return io_error(path, std::strerror(errno));
  struct stat info {};
  if (::fstat(inode.descriptor, &info) != 0) return io_error(path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return io_error(path, "is a directory, need a file");
  if (!S_ISREG(info.st_mode)) return io_error(path, "not a regular file");
  if (writer == Writer::kOwner) LLM_RETURN_IF_ERROR(check_writer(path, info));
  inode.stamp = {.size = static_cast<std::size_t>(info.st_size),
                 .modified_ns = nanoseconds(info.st_mtim),
                 .changed_ns = nanoseconds(info.st_ctim),
                 .inode = info.st_ino};
  return Ok{};
}

Status MappedFile::map() {
  const auto failed = [&](const std::string& path, std::size_t size) {
    if (errno != ENOMEM) return io_error(path, std::string("mmap: ") + std::strerror(errno));
    return in_file(detail::out_of_memory(size, "address space"), path);
  };
  // Addresses for all of it first, then each file in its place. Sizes of files cannot wrap.
  std::size_t end = 0;
  std::vector<std::size_t> begins;
  for (const Inode& inode : inodes_) {
    begins.push_back(end = round_up_to_page(end));
    end += inode.stamp.size;
  }
  if (end == 0) return Ok{};
  void* place = detail::map_pages(end, PROT_NONE, MAP_NORESERVE);
  if (place == nullptr) return failed(path(), end);
  data_ = static_cast<const std::byte*>(place);
  size_ = end;
  for (std::size_t i = 0; i < inodes_.size(); ++i) {
    auto* const begin = static_cast<std::byte*>(place) + begins[i];
    parts_[i].bytes = {begin, inodes_[i].stamp.size};
    if (inodes_[i].stamp.size == 0) continue;
    const void* mapped = ::mmap(begin, inodes_[i].stamp.size, PROT_READ, MAP_PRIVATE | MAP_FIXED,
                                inodes_[i].descriptor, 0);
    if (mapped == MAP_FAILED) return failed(parts_[i].path, inodes_[i].stamp.size);
    inodes_[i].region = MappedRegion(begin, inodes_[i].stamp.size, parts_[i].path);
  }
  return Ok{};
}

const MappedFile::Part& MappedFile::part_at(const std::byte* position) const {
  const auto behind =
      std::ranges::find_if(parts_, [&](const Part& part) { return part.bytes.data() > position; });
  return behind == parts_.begin() ? *behind : *(behind - 1);
}

std::uint64_t MappedFile::file_bytes() const {
  std::uint64_t sum = 0;
  for (const Inode& inode : inodes_) sum += inode.stamp.size;
  return sum;
}

Status MappedFile::read(std::span<const std::byte> range, std::span<std::byte> out) const {
  const Part& part = part_at(range.data());
  const Inode& inode = inodes_[static_cast<std::size_t>(&part - parts_.data())];
  auto offset = static_cast<off_t>(range.data() - part.bytes.data());
  while (!out.empty()) {
    const ssize_t n = ::pread(inode.descriptor, out.data(), out.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(part.path, std::strerror(errno));
    if (n == 0)
      return io_error(part.path,
                      "found fewer bytes than when it was opened, need an unchanged file");
    out = out.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
  return Ok{};
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  parts_ = std::exchange(other.parts_, {});
  inodes_ = std::exchange(other.inodes_, {});
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
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

void MappedFile::prefer_huge_pages() const {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_HUGEPAGE);
}

std::vector<MappedFile::Stamp> MappedFile::stamps() const {
  std::vector<Stamp> stamps;
  for (const Inode& inode : inodes_) stamps.push_back(inode.stamp);
  return stamps;
}

void MappedFile::wait_for_another_stamp() const {
  using std::chrono::nanoseconds, std::chrono::system_clock;
  constexpr nanoseconds kTick = std::chrono::milliseconds(20);
  const nanoseconds now = system_clock::now().time_since_epoch();
  for (const Inode& inode : inodes_) {
    const nanoseconds age = now - nanoseconds(inode.stamp.changed_ns);
    if (age >= nanoseconds(0) && age < kTick) std::this_thread::sleep_for(kTick - age);
  }
}

const MappedFile::Part* MappedFile::changed_part() const {
  for (std::size_t i = 0; i < inodes_.size(); ++i) {
    struct stat info {};
    if (::fstat(inodes_[i].descriptor, &info) != 0) return &parts_[i];
    const bool same = static_cast<std::size_t>(info.st_size) == inodes_[i].stamp.size &&
                      nanoseconds(info.st_mtim) == inodes_[i].stamp.modified_ns &&
                      !inodes_[i].region.is_damaged();
    if (!same) return &parts_[i];
  }
  return nullptr;
}

bool MappedFile::changed_since_open() const { return changed_part() != nullptr; }

Status MappedFile::check_unchanged(std::string_view what) const {
  const Part* changed = changed_part();
  if (changed == nullptr) return Ok{};
  return in_file(Error{ErrorCode::kIntegrity,
                       {},
                       fmt::format("{} changed while it was read, need an unchanged file", what)},
                 changed->path);
}

void MappedFile::unmap() {
  for (const Inode& inode : inodes_)
    if (inode.descriptor >= 0) ::close(inode.descriptor);
  inodes_.clear();  // first: what is listed is mapped
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
}

}  // namespace llm
