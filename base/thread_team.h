#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/result.h"

namespace llm {

/// CPUs this process may use: the affinity mask, cut by the cgroup's CPU quota (v2 and v1), rounded
/// up. At least 1. Cost: reads a few small files; ask once.
int available_cpus();

/// Time in which the calling thread ran, or slept at a barrier of its own will, so far. In the rest
/// of the time that has passed, the system ran others on its CPU. Cost: a system call.
std::chrono::nanoseconds own_time();

/// For tests of code that waits: while one of these lives, every worker of every region sleeps
/// before it begins, before and after each barrier and before each task, 0 to 200 microseconds,
/// half the time not at all, drawn from the seed, and the tasks are numbered from a random one on.
/// What reads before others have written, because a barrier is missing, then does so most of the
/// time. Not nested; no region may run while it is made or destroyed.
class RandomWaits {
 public:
  explicit RandomWaits(std::uint64_t seed);
  ~RandomWaits();
  RandomWaits(const RandomWaits&) = delete;
  RandomWaits& operator=(const RandomWaits&) = delete;
};

/// What the workers of one region share: a barrier, and the tasks between two barriers.
///
/// A worker that waits spins, which answers within a fraction of a microsecond, then sleeps, which
/// leaves the CPU to others, above all to the worker that is waited for.
/// It spins for about as long as falling asleep and waking take, so that no wait costs more than
/// twice what it must. With OMP_WAIT_POLICY=passive it sleeps almost at once, as OpenMP's own
/// threads then do: for programs that share the CPUs with others.
class Team {
 public:
  /// @param count     workers; each has a number from 0 on
  /// @param own_cpus  every worker has a CPU of its own; otherwise sleep almost at once
  /// @param waits     seed of random waits (RandomWaits), if any
  Team(int count, bool own_cpus, std::optional<std::uint64_t> waits = {});
  /// One of n tasks that is not taken since the last barrier; n when none is left. Those of a
  /// worker follow each other, so that what they read does, for the CPU's prefetchers; only once
  /// its own share (Worker::share) is done are they another's.
  std::size_t take_task(int worker, std::size_t n) {
    const int parity = shares_[worker].parity;
    for (int i = 0; i < count_; ++i) {
      const int owner = worker + i < count_ ? worker + i : worker + i - count_;
      const Range own = share(n, owner, count_);
      const std::size_t task =
          own.begin + shares_[owner].taken[parity].fetch_add(1, std::memory_order_relaxed);
      if (task >= own.end) continue;
      if (!dozes_) [[likely]]
        return task;
      return random_task(task, n);
    }
    return n;
  }
  /// Returns when all workers have called it.
  /// Throws Abandoned, now or while it waits, once a worker has called abandon().
  void wait(int worker);
  /// Ends this wait and later ones: a worker leaves with an exception and will not come.
  void abandon();
  struct Abandoned {};
  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  /// Half-open range of one of `count` workers' items out of n: contiguous, disjoint, covering,
  /// sizes differing by at most one.
  static Range share(std::size_t n, int worker, int count) {
    const auto workers = static_cast<std::size_t>(count);
    const auto me = static_cast<std::size_t>(worker);
    return {n * me / workers, n * (me + 1) / workers};
  }
  /// Sleeps while there are RandomWaits; each worker does so before it begins.
  void doze() {
    if (dozes_) [[unlikely]]
      sleep_at_random();
  }

 private:
  void meet();
  void check_complete() const;
  void sleep_at_random();
  std::size_t random_task(std::size_t i, std::size_t n);

  const std::chrono::nanoseconds spin_time_;
  const bool dozes_;
  const int count_;
  std::atomic<std::uint64_t> draws_;  ///< of random waits so far, by all workers, after the seed
  std::atomic<int> arrived_ = 0;
  std::atomic<bool> abandoned_ = false;  ///< set before generation_ moves on
  /// How many tasks of a worker's share are taken, before barriers of even and of odd number: its
  /// owner resets the one that is not in use, before it waits. `parity` is the owner's own.
  struct alignas(64) Share {
    std::atomic<std::size_t> taken[2] = {0, 0};
    int parity = 0;
  };
  const std::unique_ptr<Share[]> shares_;
  alignas(64) std::atomic<int> generation_ = 0;  ///< barriers so far; read while waiting
};

/// One worker's share of a parallel region.
struct Worker {
  int id;                ///< 0 .. count - 1
  int count;             ///< workers in the region
  Team* team = nullptr;  ///< set inside run_parallel

  /// Waits until every worker of the region has come here. @pre inside run_parallel
  void barrier() const { team->wait(id); }

  /// Calls task(i) for those i of [0, n) that this worker takes: each is taken once, those of its
  /// share first, then by whoever is free, so that none waits long for one that the system has
  /// stopped. Every worker of the region calls it with the same n; all tasks are done after the
  /// next barrier.
  /// @pre inside run_parallel, and a barrier since the last call
  template <typename Task>
  void take_tasks(std::size_t n, Task&& task) const {
    for (std::size_t i = team->take_task(id, n); i < n; i = team->take_task(id, n)) task(i);
  }

  using Range = Team::Range;
  /// Half-open range of this worker's items out of `n`, in whole groups of `group` items:
  /// contiguous, disjoint, covering, sizes differing by at most one group.
  Range share(std::size_t n, std::size_t group = 1) const;
};

/// Whether the system lets this process run `n_threads`. Finds out by starting so many, which
/// OpenMP would end the process for, unless it is known from before. Errors: kResource naming how
/// many could be started, with the system's words. Cost: once for each larger number, about 20 us a
/// thread.
Status start_threads(int n_threads);

/// Starts the threads that the calling thread's regions of up to `n_threads` will have, so that
/// none of them has to find out that there are too few. Errors: as start_threads(), of what is left
/// now.
/// @pre the calling thread has run no region, or end_team() since
Status start_team(int n_threads);

/// Ends the threads that OpenMP keeps for the calling thread's next region, which starts its own.
/// @pre not inside run_parallel
void end_team();

/// Runs `body` once on each of `n_threads` OpenMP threads (fewer if OpenMP is told so) and waits
/// for all. Every worker computes in the contract's FloatEnvironment and gets its own back.
/// Throws what a worker throws, the first one's: the others leave at their next barrier, or end;
/// std::runtime_error with the words of start_threads() when that gives an error.
/// @pre n_threads >= 1
void run_parallel(int n_threads, const std::function<void(Worker)>& body);

}  // namespace llm
