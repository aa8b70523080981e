#pragma once

#include <cstddef>
#include <string_view>

namespace llm {

/// A place in memory where a file is mapped, listed for a handler of SIGBUS, by which the system
/// answers a read of what a file has lost since it was mapped (cut in place, or a disk that fails).
///
/// Libraries install no handler. A program that does may name the file and end (named_at()), or
/// let the reader go on with zeros (mend_at()); then is_damaged() says that what was read is not
/// what the file had. A listing costs some nanoseconds, and is_damaged() one load.
class MappedRegion {
 public:
  MappedRegion() = default;
  /// @param path  for named_at(). @pre the file is mapped there, until after this is destroyed
  MappedRegion(const std::byte* begin, std::size_t size, std::string_view path);
  ~MappedRegion() { unlist(); }
  MappedRegion(MappedRegion&& other) noexcept;
  MappedRegion& operator=(MappedRegion&& other) noexcept;
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;

  /// Whether mend_at() has put zeros here. Stays true.
  bool is_damaged() const;

  // For handlers: async-signal-safe, errno stays. `address` is the one that could not be read.

  /// The path of the file mapped there, on one line and cut to 1 KiB; nullptr: none is listed.
  static const char* named_at(const void* address) noexcept;
  /// Puts zeros in place of the region's pages from `address` to its end, for good, so that the
  /// read can be repeated. @return whether a region is listed there and the system did so
  static bool mend_at(const void* address) noexcept;

 private:
  struct Entry;

  static Entry* take_entry();
  static Entry* find(const void* address) noexcept;
  void unlist();

  Entry* entry_ = nullptr;
};

}  // namespace llm
