#ifndef LLM_TESTS_SUPPORT_HOST_FLOAT_MODE_H_
#define LLM_TESTS_SUPPORT_HOST_FLOAT_MODE_H_

#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace llm::test {

/// While one lives, this thread is in the mode of an awkward host: rounds upwards and, on x86,
/// flushes denormals.
class HostFloatMode {
 public:
  HostFloatMode() {
    std::fegetenv(&before_);
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | kFlushes);
#endif
  }
  ~HostFloatMode() { std::fesetenv(&before_); }
  HostFloatMode(const HostFloatMode&) = delete;
  HostFloatMode& operator=(const HostFloatMode&) = delete;

  /// Whether the thread is in this mode now.
  static bool stands() {
    bool stands = std::fegetround() == FE_UPWARD;
#if defined(__x86_64__)
    stands = stands && (_mm_getcsr() & kFlushes) == kFlushes;
#endif
    return stands;
  }

 private:
  static constexpr unsigned kFlushes = (1U << 15) | (1U << 6);  // FTZ, DAZ

  std::fenv_t before_;
};

}  // namespace llm::test

#endif  // LLM_TESTS_SUPPORT_HOST_FLOAT_MODE_H_
