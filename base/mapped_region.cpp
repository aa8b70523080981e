#include "base/mapped_region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "base/shown_text.h"

namespace llm {
namespace {

constexpr std::uintptr_t kNowhere = UINTPTR_MAX;

std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

std::uintptr_t page_bytes() {
  static const auto bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

/// Entries are never freed, only used again, so that a handler may walk their list at any moment.
/// Nothing lies in an entry whose `begin` is kNowhere: that is set last to list a region and first
/// to unlist it.
struct MappedRegion::Entry {
  std::atomic<std::uintptr_t> begin = kNowhere;
  std::atomic<std::uintptr_t> end = 0;
  std::atomic<bool> is_damaged = false;
  std::atomic<bool> is_taken = true;
  char path[1024] = {};
  Entry* next = nullptr;

  static std::atomic<Entry*> first;
};
std::atomic<MappedRegion::Entry*> MappedRegion::Entry::first = nullptr;
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

MappedRegion::Entry* MappedRegion::take_entry() {
  for (Entry* entry = Entry::first; entry != nullptr; entry = entry->next) {
    if (!entry->is_taken.exchange(true)) return entry;
  }
  auto* const entry = new Entry;
  entry->next = Entry::first;
  while (!Entry::first.compare_exchange_weak(entry->next, entry)) {
  }
  return entry;
}

MappedRegion::MappedRegion(const std::byte* begin, std::size_t size, std::string_view path)
    : entry_(take_entry()) {
  page_bytes();  // now, and not first in a handler
  const std::string text = shown(path, sizeof entry_->path - 64);
  std::strncpy(entry_->path, text.c_str(), sizeof entry_->path - 1);
  entry_->is_damaged = false;
  entry_->end = number_of(begin) + size;
  entry_->begin = number_of(begin);
}

void MappedRegion::unlist() {
  if (entry_ == nullptr) return;
  entry_->begin = kNowhere;
  entry_->is_taken = false;
  entry_ = nullptr;
}

MappedRegion::MappedRegion(MappedRegion&& other) noexcept
    : entry_(std::exchange(other.entry_, nullptr)) {}

MappedRegion& MappedRegion::operator=(MappedRegion&& other) noexcept {
  if (this == &other) return *this;
  unlist();
  entry_ = std::exchange(other.entry_, nullptr);
  return *this;
}

bool MappedRegion::is_damaged() const { return entry_ != nullptr && entry_->is_damaged; }

MappedRegion::Entry* MappedRegion::find(const void* address) noexcept {
  const std::uintptr_t at = number_of(address);
  for (Entry* entry = Entry::first; entry != nullptr; entry = entry->next) {
    // `begin` twice: an entry that becomes another region's meanwhile is not `address`'s, which is
    // being read and so stays mapped.
    const std::uintptr_t begin = entry->begin;
    if (begin <= at && at < entry->end && begin == entry->begin) return entry;
  }
  return nullptr;
}

const char* MappedRegion::named_at(const void* address) noexcept {
  const Entry* const entry = find(address);
  return entry == nullptr ? nullptr : entry->path;
}

bool MappedRegion::mend_at(const void* address) noexcept {
  Entry* const entry = find(address);
  if (entry == nullptr) return false;
  entry->is_damaged = true;  // before anyone reads a zero
  const int before = errno;
  // To the end: a file that was cut has nothing behind that place either, and one signal and one
  // mapping are enough, however large it is.
  const std::uintptr_t begin = number_of(address) & ~(page_bytes() - 1);
  void* const mapped = ::mmap(reinterpret_cast<void*>(begin), entry->end - begin, PROT_READ,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  errno = before;
  return mapped != MAP_FAILED;
}

}  // namespace llm
