#ifndef LLM_BASE_THREAD_TEAM_H_
#define LLM_BASE_THREAD_TEAM_H_

#include <atomic>
#include <cstddef>
#include <functional>

namespace llm {

/// CPUs this process may use: the affinity mask, cut by the cgroup's CPU quota (v2 and v1), rounded
/// up. At least 1. Cost: reads a few small files; ask once.
int available_cpus();

/// Lets the workers of one region wait for each other: spins, which answers within a fraction of a
/// microsecond, then sleeps, which leaves the CPU to others.
class TeamBarrier {
 public:
  /// @param own_cpus  every worker can have a CPU of its own: spin for about half a millisecond,
  ///                  more than workers of equal shares differ by; otherwise sleep almost at once
  TeamBarrier(int count, bool own_cpus);
  /// Returns when all `count` workers have called it.
  void wait();

 private:
  const int count_;
  const int spins_;
  std::atomic<int> arrived_ = 0;
  std::atomic<int> generation_ = 0;
};

/// One worker's share of a parallel region.
struct Worker {
  int id;                       ///< 0 .. count - 1
  int count;                    ///< workers in the region
  TeamBarrier* team = nullptr;  ///< set inside run_parallel

  /// Waits until every worker of the region has come here. @pre inside run_parallel
  void barrier() const { team->wait(); }

  /// Half-open range of this worker's items out of `n`, in whole groups of `group` items:
  /// contiguous, disjoint, covering, sizes differing by at most one group.
  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  Range share(std::size_t n, std::size_t group = 1) const;
};

/// Runs `body` once on each of `n_threads` OpenMP threads (fewer if OpenMP is told so) and waits
/// for all. Every worker computes in the contract's FloatEnvironment and gets its own back.
/// @pre n_threads >= 1
void run_parallel(int n_threads, const std::function<void(Worker)>& body);

}  // namespace llm

#endif  // LLM_BASE_THREAD_TEAM_H_
