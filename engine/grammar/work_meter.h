#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <new>
#include <string>

namespace llm {

/// What a WorkMeter throws. It needs no memory.
class WorkExceeded final : public std::bad_alloc {
 public:
  const char* what() const noexcept override { return "too much work"; }
  std::array<char, 64> rule = {};  ///< that it was done for, as far as is known; NUL-terminated
};

/// Bounds the work of this thread while it lives, by a count that does not depend on the machine's
/// load: a unit for each state that xgrammar's parser looks at (scripts/xgrammar_work.patch), and
/// kUnitsOfRequest for each request for memory and for every 256 bytes of it, which all else that
/// xgrammar does needs. The linker's --wrap leads `operator new` here; without a meter, nothing is
/// counted. What libstdc++.so itself asks for is not seen, so a static build counts a little more.
class WorkMeter {
 public:
  static constexpr std::uint64_t kUnitsOfRequest = 8;

  /// @param units  how many there are; gets how many are left. Outlives this
  /// @param is_given_up  asked now and then; what it agrees to exceeds the limit. May be null
  explicit WorkMeter(std::uint64_t& units, std::function<bool()> is_given_up = nullptr);
  ~WorkMeter();
  WorkMeter(const WorkMeter&) = delete;
  WorkMeter& operator=(const WorkMeter&) = delete;

  /// Counts for this thread's meter, if there is one. Throws WorkExceeded.
  static void count(std::uint64_t units, const std::string* rule);

 private:
  void refill(std::uint64_t units, const std::string* rule);

  std::uint64_t& units_;
  std::function<bool()> is_given_up_;
};

}  // namespace llm
