#include "engine/forward/team_size.h"

#include "tests/support/test.h"

namespace llm {
namespace {

using std::chrono::microseconds;

/// A machine where a pass of n workers takes 20 ms / n, and `stalled` times that while more workers
/// run than CPUs are free.
struct Machine {
  int free_cpus;
  double stalled = 10;
  int stopped_every = 1;  ///< of so many crowded passes, one has a worker stopped

  /// @return workers of the last pass
  int run(TeamSize& size, int n_passes, double* mean_ms = nullptr) const {
    double sum = 0;
    int workers = 0;
    for (int i = 0; i < n_passes; ++i) {
      workers = size.workers(1);
      const bool crowded = workers > free_cpus;
      const double ms = 20.0 / workers * (crowded ? stalled : 1);
      sum += ms;
      size.passed(1, microseconds(static_cast<int>(ms * 1000)), crowded && i % stopped_every == 0);
    }
    if (mean_ms != nullptr) *mean_ms = sum / n_passes;
    return workers;
  }
};

}  // namespace

TEST_CASE("an idle machine keeps every worker", "[team_size]") {
  for (const int most : {1, 2, 3, 8}) {
    TeamSize size(most);
    for (int i = 0; i < 500; ++i) {
      REQUIRE(size.workers(1) == most);
      size.passed(1, microseconds(i % 7 == 0 ? 90'000 : 9'000), false);
    }
  }
}

TEST_CASE("a busy machine costs a worker, an idle one gives it back", "[team_size]") {
  for (const int most : {2, 4, 8}) {
    for (const int free : {1, most - 1}) {
      CAPTURE(most, free);
      TeamSize size(most);
      CHECK(Machine{.free_cpus = free, .stopped_every = 2}.run(size, 3000) <= free);
      double mean = 0;
      Machine{.free_cpus = free}.run(size, 4000, &mean);
      CHECK(mean < 20.0 / free * 1.1);  // trials cost little
      CHECK(Machine{.free_cpus = most}.run(size, 20'000) == most);
    }
  }
}

TEST_CASE("a worker that is stopped but helps is kept", "[team_size]") {
  TeamSize size(2);
  double mean = 0;
  Machine{.free_cpus = 1, .stalled = 1.5}.run(size, 2000, &mean);
  CHECK(mean < 15.0 * 1.05);
}

TEST_CASE("a pass of several rows gets every worker", "[team_size]") {
  TeamSize size(3);
  Machine{.free_cpus = 1}.run(size, 400);
  REQUIRE(size.workers(1) == 1);
  CHECK(size.workers(2) == 3);
  for (int i = 0; i < 100; ++i) size.passed(512, microseconds(1000), true);
  CHECK(size.workers(1) == 1);
}

}  // namespace llm
