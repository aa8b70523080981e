#pragma once

#include <ctime>

#include "tests/support/test.h"

namespace llm {

/// CPU time of this thread that `work` takes, the least of three.
template <typename Work>
double cost(const Work& work) {
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    timespec begin{};
    timespec end{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    work();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    least = std::min(least, static_cast<double>(end.tv_sec - begin.tv_sec) +
                                1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec));
  }
  return least;
}

/// Of 4 times as much work: about 4, and 16 where it is quadratic.
inline constexpr double kMostGrowth = 9;

}  // namespace llm
