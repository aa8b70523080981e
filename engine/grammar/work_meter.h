#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

namespace llm {

/// What a WorkMeter throws.
class WorkExceeded final : public std::bad_alloc {
 public:
  const char* what() const noexcept override { return "too much work"; }
};

/// Bounds the work of this thread while it lives. The measure is its requests for memory: one unit
/// each and one for every 256 bytes, which does not depend on the machine's load. xgrammar asks for
/// memory for each state that it makes, so this stops it where nothing else does. The linker's
/// --wrap leads `operator new` here; without a meter, nothing is counted.
class WorkMeter {
 public:
  explicit WorkMeter(std::uint64_t most);
  ~WorkMeter();
  WorkMeter(const WorkMeter&) = delete;
  WorkMeter& operator=(const WorkMeter&) = delete;
};

}  // namespace llm
