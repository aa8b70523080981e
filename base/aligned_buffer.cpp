#include "base/aligned_buffer.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace llm::detail {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMapFrom = std::size_t{128} << 10;

// Rounded to small pages: rounded to huge ones, the last page of every buffer would be mostly
// unused memory.
std::size_t map_size(std::size_t size) { return (size + kPage - 1) & ~(kPage - 1); }

}  // namespace

void* map_pages(std::size_t size, int protection, int flags) {
  flags |= MAP_PRIVATE | MAP_ANONYMOUS;
  // Over-map by a huge page and trim, so the start is aligned.
  const std::size_t spare = size < kHugePage ? 0 : kHugePage;
  const std::size_t wanted = map_size(size);
  if (wanted < size || wanted + spare < wanted) {
    errno = ENOMEM;
    return nullptr;
  }
  void* raw = ::mmap(nullptr, wanted + spare, protection, flags, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  if (spare == 0) return raw;
  const auto begin = reinterpret_cast<std::uintptr_t>(raw);
  const auto aligned = (begin + kHugePage - 1) & ~(kHugePage - 1);
  if (aligned > begin) ::munmap(raw, aligned - begin);
  const std::size_t tail = begin + kHugePage - aligned;
  if (tail > 0) ::munmap(reinterpret_cast<void*>(aligned + wanted), tail);
  return reinterpret_cast<void*>(aligned);
}

void* allocate_zeroed(std::size_t size) {
  if (size >= kMapFrom) {
    // Fresh anonymous pages are zero, and become memory where and when they are first written.
    void* mapped = map_pages(size, PROT_READ | PROT_WRITE, 0);
    if (mapped != nullptr && size >= kHugePage) ::madvise(mapped, map_size(size), MADV_HUGEPAGE);
    return mapped;
  }
  const std::size_t rounded = (size + 63) & ~std::size_t{63};
  void* data = std::aligned_alloc(64, rounded);
  if (data != nullptr) std::memset(data, 0, rounded);
  return data;
}

void release(void* data, std::size_t size) {
  if (data == nullptr) return;
  if (size >= kMapFrom) {
    ::munmap(data, map_size(size));
  } else {
    std::free(data);
  }
}

Error out_of_memory(std::uint64_t bytes, std::string_view what) {
  return Error{.code = ErrorCode::kResource,
               .field = std::string(what),
               .message = fmt::format("need {} MiB of memory, which the system refused",
                                      bytes / (1024 * 1024) + 1),
               .hint = "use a smaller model or context (-c), or raise the memory limit"};
}

}  // namespace llm::detail
