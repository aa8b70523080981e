#include "base/thread_team.h"

#include <fmt/core.h>
#include <sched.h>
#include <strings.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <exception>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/check.h"
#include "base/float_environment.h"
#include "base/per_thread.h"

namespace llm {
namespace {

int affinity_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::optional<double> quota_v2(const std::string& directory) {
  std::ifstream file(directory + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(quota.c_str(), &end);
  if (end == quota.c_str() || value <= 0) return std::nullopt;
  return value / period;
}

std::optional<double> quota_v1() {
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0) {
    return std::nullopt;
  }
  return quota / period;
}

// The tightest quota on the way from this process's cgroup up to the root.
std::optional<double> cgroup_quota() {
  std::optional<double> tightest = quota_v1();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    std::string path = line.substr(3);
    while (true) {
      const auto quota = quota_v2("/sys/fs/cgroup" + path);
      if (quota && (!tightest || *quota < *tightest)) tightest = quota;
      const auto slash = path.rfind('/');
      if (path.empty() || slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return tightest;
}

std::optional<std::uint64_t> random_waits;  // changes between regions only

thread_local std::chrono::nanoseconds asleep{0};  // at barriers
thread_local bool in_region = false;              // whose regions have one worker

constexpr std::chrono::microseconds kOwnCpuSpin(50);  // of a worker with a CPU of its own
constexpr std::chrono::microseconds kNoSpin(1);

/// OpenMP's word for threads that leave their CPU to others while they wait.
bool waits_passively() {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  return policy != nullptr && ::strcasecmp(policy, "passive") == 0;
}

/// SplitMix64 (Steele, Lea, Flood 2014): neighbouring inputs give independent outputs.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
  x = (x ^ x >> 27) * 0x94D049BB133111EBU;
  return x ^ x >> 31;
}

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns once `word` is not `old` any more: spins for a time, then sleeps.
void wait_for_change(const std::atomic<int>& word, int old, std::chrono::nanoseconds spin_time) {
  const auto give_up = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (word.load(std::memory_order_acquire) != old) return;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < give_up);
  const auto falls_asleep = std::chrono::steady_clock::now();
  word.wait(old, std::memory_order_acquire);
  asleep += std::chrono::steady_clock::now() - falls_asleep;
}

/// Whether each of so many workers has a CPU of its own to wait on.
bool have_own_cpus(int n_threads) {
  static const int cpus = available_cpus();
  static const bool passive = waits_passively();
  return n_threads <= cpus && !passive;
}

/// The threads that one thread computes on besides itself. They wait for its next region.
class Crew {
 public:
  Crew() = default;
  ~Crew() { dismiss(); }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  /// From now on there are `n_threads` at least, the calling one among them. Errors: kResource
  /// naming how many could be started, with the system's words.
  Status grow(int n_threads) {
    try {
      while (size() < n_threads) {
        Member& member = members_.emplace_back();
        try {
          member.thread = std::thread([&member] { member.work(); });
        } catch (...) {
          members_.pop_back();
          throw;
        }
      }
    } catch (const std::exception& error) {  // std::system_error, or no memory for its state
      return Error{.code = ErrorCode::kResource,
                   .field = "threads",
                   .message = fmt::format("found {} that can be started ({}), need {}", size(),
                                          error.what(), n_threads),
                   .hint = "use fewer threads, or raise the limits of processes and memory"};
    }
    return Ok{};
  }

  /// Calls job(i) for each i of [0, n_threads), each on a thread of its own, and waits for all.
  /// @pre n_threads <= size(); the job does not throw
  void run(int n_threads, const std::function<void(int)>& job) {
    if (n_threads == 1) return job(0);  // also in a region of this crew
    const std::chrono::nanoseconds spin_time = have_own_cpus(n_threads) ? kOwnCpuSpin : kNoSpin;
    n_running_ = n_threads - 1;
    for (int i = 1; i < n_threads; ++i)
      members_[static_cast<std::size_t>(i) - 1].begin({&job, i, &n_running_, spin_time});
    job(0);
    for (int n = n_running_; n > 0; n = n_running_) wait_for_change(n_running_, n, spin_time);
  }

  void dismiss() {
    for (Member& member : members_) member.begin({});
    for (Member& member : members_) member.thread.join();
    members_.clear();
  }

 private:
  struct Task {
    const std::function<void(int)>* job = nullptr;  ///< null: end
    int id = 0;
    std::atomic<int>* n_running = nullptr;  ///< one less when it is done
    std::chrono::nanoseconds spin_time{};
  };

  struct Member {
    std::thread thread;
    Task task;
    std::atomic<int> n_begun = 0;  ///< tasks so far; `task` is the last one

    void begin(const Task& next) {
      task = next;
      n_begun.fetch_add(1, std::memory_order_acq_rel);
      n_begun.notify_one();
    }

    void work() {
      std::chrono::nanoseconds spin_time = kNoSpin;
      for (int n_done = 0;; ++n_done) {
        wait_for_change(n_begun, n_done, spin_time);
        if (task.job == nullptr) return;
        spin_time = task.spin_time;
        (*task.job)(task.id);
        std::atomic<int>& n_running = *task.n_running;  // `task` is the next one after that
        n_running.fetch_sub(1, std::memory_order_acq_rel);
        n_running.notify_one();
      }
    }
  };

  int size() const { return static_cast<int>(members_.size()) + 1; }

  std::atomic<int> n_running_ = 0;
  std::deque<Member> members_;  // each stays at its place
};

/// The calling thread's.
Crew& own_crew() {
  static const PerThread<Crew> crews;
  return crews.mine();
}

}  // namespace

int available_cpus() {
  const int cpus = affinity_cpus();
  const auto quota = cgroup_quota();
  if (!quota) return cpus;
  return std::clamp(static_cast<int>(std::ceil(*quota)), 1, cpus);
}

std::chrono::nanoseconds own_time() {
  timespec ran{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
  return asleep + std::chrono::seconds(ran.tv_sec) + std::chrono::nanoseconds(ran.tv_nsec);
}

RandomWaits::RandomWaits(std::uint64_t seed) {
  LLM_CHECK(!random_waits);
  random_waits = seed;
}

RandomWaits::~RandomWaits() { random_waits.reset(); }

Team::Team(int count, bool own_cpus, std::optional<std::uint64_t> waits)
    : spin_time_(own_cpus ? kOwnCpuSpin : kNoSpin),
      dozes_(waits.has_value()),
      count_(count),
      draws_(waits.value_or(0)),
      shares_(std::make_unique<Share[]>(static_cast<std::size_t>(count))) {}

void Team::wait(int worker) {
  // Nobody takes tasks of before the last barrier any more.
  Share& mine = shares_[worker];
  mine.parity ^= 1;
  mine.taken[mine.parity].store(0, std::memory_order_relaxed);
  if (count_ == 1) return;
  doze();
  meet();
  doze();
}

void Team::sleep_at_random() {
  const std::uint64_t draw = mixed(draws_.fetch_add(1, std::memory_order_relaxed));
  if (draw % 2 == 0) return;
  const std::chrono::microseconds time(draw / 2 % 201);
  std::this_thread::sleep_for(time);
  asleep += time;
}

std::size_t Team::random_task(std::size_t i, std::size_t n) {
  sleep_at_random();
  // The same for all workers between two barriers.
  const auto generation = static_cast<std::uint64_t>(generation_.load(std::memory_order_relaxed));
  return (i + mixed(generation) % n) % n;
}

void Team::abandon() {
  abandoned_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_acq_rel);
  generation_.notify_all();
}

void Team::check_complete() const {
  if (abandoned_.load(std::memory_order_relaxed)) [[unlikely]]
    throw Abandoned{};
}

void Team::meet() {
  const int generation = generation_.load(std::memory_order_acquire);
  check_complete();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_acq_rel);
    generation_.notify_all();
    return;
  }
  wait_for_change(generation_, generation, spin_time_);
  check_complete();
}

Worker::Range Worker::share(std::size_t n, std::size_t group) const {
  const std::size_t groups = (n + group - 1) / group;
  const auto [begin, end] = Team::share(groups, id, count);
  return {std::min(begin * group, n), std::min(end * group, n)};
}

Status start_threads(int n_threads) {
  LLM_CHECK(n_threads >= 1);
  return own_crew().grow(in_region ? 1 : n_threads);
}

Status start_team(int n_threads) { return start_threads(n_threads); }

void end_team() { own_crew().dismiss(); }

void run_parallel(int n_threads, const std::function<void(Worker)>& body) {
  if (const Status started = start_threads(n_threads); !started.ok())
    throw std::runtime_error(started.error().to_string());
  const int count = in_region ? 1 : n_threads;
  std::exception_ptr thrown;
  std::atomic<bool> failed = false;
  // Regions of one seed draw different waits.
  if (random_waits) random_waits = mixed(*random_waits);
  Team team(count, have_own_cpus(count), random_waits);
  own_crew().run(count, [&](int id) {
    const FloatEnvironment contract;
    const bool outer = std::exchange(in_region, true);
    team.doze();
    try {
      body({id, count, &team});
    } catch (const Team::Abandoned&) {
      // Whoever abandoned the team has said why.
    } catch (...) {
      if (!failed.exchange(true)) thrown = std::current_exception();
      team.abandon();
    }
    in_region = outer;
  });
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace llm
