#pragma once

#include <cfenv>
#include <cstdint>

namespace llm {

/// While one lives, this thread computes as docs/numerics.md says, whatever its host has set: round
/// to nearest, denormals kept (no FTZ, no DAZ), no traps. The host's environment comes back on
/// destruction, with its exception flags as they were.
///
/// run_parallel() makes one in every worker. Make one wherever floating-point results are computed
/// on the caller's own thread: at the entry of a library, around all of it, because a compiler may
/// move arithmetic past one that stands between.
/// Cost: 0.2 us.
class FloatEnvironment {
 public:
  FloatEnvironment() {
    std::fegetenv(&host_);
    std::fesetenv(FE_DFL_ENV);  // with FTZ and DAZ on x86
#if defined(__aarch64__)
    // glibc keeps AHP here, without which f16 has infinities.
    asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
#endif
  }
  ~FloatEnvironment() { std::fesetenv(&host_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::fenv_t host_;
};

}  // namespace llm
