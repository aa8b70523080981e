#include "base/aligned_buffer.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace llm::detail {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kMapFrom = std::size_t{128} << 10;

// Rounded to small pages: rounded to huge ones, the last page of every buffer would be mostly
// unused memory.
std::size_t map_size(std::size_t size) { return (size + kPage - 1) & ~(kPage - 1); }

// Fresh anonymous pages are zero, and become memory where and when they are first written. From one
// huge page on: over-map by one and trim, so the start is aligned.
void* map_zeroed(std::size_t size) {
  const std::size_t wanted = map_size(size);
  if (size < kHugePage) {
    void* small =
        ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return small == MAP_FAILED ? nullptr : small;
  }
  if (wanted < size || wanted + kHugePage < wanted) return nullptr;
  void* raw = ::mmap(nullptr, wanted + kHugePage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(raw);
  const auto aligned = (begin + kHugePage - 1) & ~(kHugePage - 1);
  if (aligned > begin) ::munmap(raw, aligned - begin);
  const std::size_t tail = begin + kHugePage - aligned;
  if (tail > 0) ::munmap(reinterpret_cast<void*>(aligned + wanted), tail);
  ::madvise(reinterpret_cast<void*>(aligned), wanted, MADV_HUGEPAGE);
  return reinterpret_cast<void*>(aligned);
}

}  // namespace

void* allocate_zeroed(std::size_t size) {
  if (size >= kMapFrom) return map_zeroed(size);
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
