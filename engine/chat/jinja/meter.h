#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/chat/render_limits.h"

namespace llm::jinja {

/// Thrown where a template passes a limit, through everything that works for it; metered() makes an
/// Error of it. Nothing else here throws, and nothing outside sees it.
struct Exceeded {
  std::string limit;
};

/// What the template under way on this thread has taken, and what it may take. Whatever works for a
/// template counts here before or while it works, so that no operation, however it is combined,
/// runs for long, holds much or recurses deeply without its knowing.
class Meter {
 public:
  /// A step is the evaluation of a node, a value that is made, or 64 bytes that are gone through: a
  /// tenth of a microsecond on a fast machine, so that kMaxSteps end within two seconds on one that
  /// is half as fast.
  static constexpr std::size_t kMaxSteps = 10'000'000;
  static constexpr std::size_t kStepUnits = 64;
  /// Of evaluations, statements and macros inside each other.
  static constexpr std::size_t kMaxLevels = 1000;
  /// A level takes 0.4 to 1.1 KiB of stack (gcc 12, -O1; the most where a `call` block calls a
  /// macro), so that all of them take 1.1 MiB: seven times that is there for builds that are not
  /// optimized or are watched. The parser's 150 levels (Parser::kMaxDepth) and values of 100
  /// (Runtime::kMaxValueDepth) take less.
  static constexpr std::size_t kStackBytes = std::size_t{8} << 20;
  /// Of memory that a template may hold: as tokens and nodes, and as values. Both, with the text
  /// that is handed out, are less than 128 MiB.
  static constexpr std::size_t kMaxSourceBytes = std::size_t{40} << 20;
  static constexpr std::size_t kMaxValueBytes = std::size_t{64} << 20;

  /// From now on what this thread does counts here.
  Meter(std::size_t most_bytes, const RenderLimits& limits);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// Counts 1/64 steps.
  void add(std::size_t units) {
    units_ += units;
    if (units_ >= next_look_) look();
  }
  void take(std::size_t bytes);
  void give(std::size_t bytes) { bytes_ -= bytes < bytes_ ? bytes : bytes_; }
  void enter();
  void leave() { --levels_; }
  std::size_t steps() const { return units_ / kStepUnits; }

  int line = 1;  ///< of the template that is being read or rendered

 private:
  /// Compares with all that is not counted: clocks, and whether anybody waits still.
  void look();

  const std::size_t most_bytes_;
  const RenderLimits& limits_;
  const std::chrono::steady_clock::time_point begin_;
  std::size_t units_ = 0;
  std::size_t next_look_ = 0;
  std::size_t bytes_ = 0;
  std::size_t levels_ = 0;
};

/// This thread's; null: nothing is counted (where a parsed template is destroyed).
extern constinit thread_local Meter* meter_here;

/// Counts work before it is done: steps, or bytes that are gone through (a character or an item
/// that is looked at by itself is some of them).
inline void charge(std::size_t steps = 1) {
  if (meter_here) meter_here->add(steps * Meter::kStepUnits);
}
inline void touch(std::size_t bytes) {
  if (meter_here) meter_here->add(bytes);
}

/// A level of whatever recurses.
class Level {
 public:
  Level() { meter_here->enter(); }
  ~Level() { meter_here->leave(); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
};

/// Memory that counts. What is allocated on a metered thread may be freed on another.
template <typename T>
struct Counted {
  using value_type = T;
  Counted() = default;
  template <typename U>
  Counted(const Counted<U>& /*other*/) {}

  T* allocate(std::size_t n) {
    if (n > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_alloc();
    if (meter_here) meter_here->take(size_of(n));
    return static_cast<T*>(::operator new(n * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t n) {
    if (meter_here) meter_here->give(size_of(n));
    ::operator delete(memory);
  }
  bool operator==(const Counted& /*other*/) const { return true; }

 private:
  /// With the allocator's head, rounded as it does.
  static std::size_t size_of(std::size_t n) { return (n * sizeof(T) + 8 + 15) / 16 * 16; }
};

using String = std::basic_string<char, std::char_traits<char>, Counted<char>>;
template <typename T>
using Vector = std::vector<T, Counted<T>>;
template <typename T>
std::shared_ptr<T> make_counted(T value) {
  return std::allocate_shared<T>(Counted<T>(), std::move(value));
}

/// What `work` returns, on a thread with a stack of kStackBytes and a meter.
/// Errors: those of work; kResource naming the line where a limit is passed, and where there is no
/// thread.
Status metered(std::size_t most_bytes, const RenderLimits& limits,
               const std::function<Status(Meter&)>& work);

}  // namespace llm::jinja
