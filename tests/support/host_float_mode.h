#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace llm::test {

/// While one lives, this thread is in the mode of an awkward host: rounds upwards, flushes
/// denormals and, on ARM, has another f16, without infinities.
class HostFloatMode {
 public:
  HostFloatMode() {
    std::fegetenv(&before_);
    std::fesetround(FE_UPWARD);
    set_mode(mode() | kAwkward);
  }
  ~HostFloatMode() { std::fesetenv(&before_); }
  HostFloatMode(const HostFloatMode&) = delete;
  HostFloatMode& operator=(const HostFloatMode&) = delete;

  /// Whether the thread is in this mode now.
  static bool stands() { return std::fegetround() == FE_UPWARD && (mode() & kAwkward) == kAwkward; }

 private:
#if defined(__x86_64__)
  using Mode = unsigned;
  static constexpr Mode kAwkward = (1U << 15) | (1U << 6);  // FTZ, DAZ
  static Mode mode() { return _mm_getcsr(); }
  static void set_mode(Mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = std::uint64_t;
  static constexpr Mode kAwkward = (1U << 24) | (1U << 26);  // FZ, AHP
  static Mode mode() {
    Mode mode = 0;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set_mode(Mode mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
  using Mode = unsigned;
  static constexpr Mode kAwkward = 0;
  static Mode mode() { return 0; }
  static void set_mode(Mode) {}
#endif

  std::fenv_t before_;
};

}  // namespace llm::test
