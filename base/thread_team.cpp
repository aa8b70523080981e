#include "base/thread_team.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <omp.h>
#include <sched.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <latch>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/check.h"
#include "base/float_environment.h"

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

constexpr std::chrono::microseconds kNoSpin(1);

/// OpenMP's word for threads that leave their CPU to others while they wait. Its runtime takes it
/// from the environment, and so does the barrier, which stands in for OpenMP's.
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

/// Threads of this process that the system still counts, a joined one for a moment too; 0 where it
/// does not say. Allocates nothing: std::filesystem's iterators end the process without memory.
std::size_t counted_threads() {
  char text[1024] = {};  // "PID (NAME) ...", with the number as the 18th word after the name
  const int file = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = ::read(file, text, sizeof text - 1);
  ::close(file);
  const char* at = size > 0 ? std::strrchr(text, ')') : nullptr;
  for (int word = 0; at != nullptr && word < 18; ++word) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoul(at, nullptr, 10);
}

/// Starts `n` threads that are all there at once, and ends them.
/// @return how many could be started, with the system's words when that is not all
std::pair<std::size_t, std::string> try_threads(std::size_t n) {
  const std::size_t before = counted_threads();
  std::vector<std::thread> threads;
  threads.reserve(n);
  std::latch all(1);
  std::string words;
  try {
    while (threads.size() < n) threads.emplace_back([&all] { all.wait(); });
  } catch (const std::exception& error) {  // std::system_error, or no memory for its state
    words = error.what();
  }
  all.count_down();
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 100 && counted_threads() > before; ++i)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  return {threads.size(), words};
}

/// Whether so many threads, this one among them, can be there at once now.
Status check_threads(int n_threads) {
  const auto [others, words] = try_threads(static_cast<std::size_t>(n_threads) - 1);
  if (words.empty()) return Ok{};
  return Error{.code = ErrorCode::kResource,
               .field = "threads",
               .message = fmt::format("found {} that can be started ({}), need {}", others + 1,
                                      words, n_threads),
               .hint = "use fewer threads, or raise the limits of processes and memory"};
}

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
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

Team::Team(bool own_cpus, std::optional<std::uint64_t> waits)
    : spin_time_(own_cpus ? std::chrono::microseconds(50) : kNoSpin),
      dozes_(waits.has_value()),
      draws_(waits.value_or(0)) {}

void Team::wait() {
  if (count_.load(std::memory_order_relaxed) == 1) {
    next_task_.store(0, std::memory_order_relaxed);
    return;
  }
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
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 ==
      count_.load(std::memory_order_relaxed)) {
    arrived_.store(0, std::memory_order_relaxed);
    next_task_.store(0, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_acq_rel);
    generation_.notify_all();
    return;
  }
  const auto give_up = std::chrono::steady_clock::now() + spin_time_;
  do {
    for (int i = 0; i < 32; ++i) {
      if (generation_.load(std::memory_order_acquire) != generation) return check_complete();
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < give_up);
  const auto falls_asleep = std::chrono::steady_clock::now();
  generation_.wait(generation, std::memory_order_acquire);
  asleep += std::chrono::steady_clock::now() - falls_asleep;
  check_complete();
}

Worker::Range Worker::share(std::size_t n, std::size_t group) const {
  const std::size_t groups = (n + group - 1) / group;
  const auto workers = static_cast<std::size_t>(count);
  const auto me = static_cast<std::size_t>(id);
  const std::size_t begin = groups * me / workers * group;
  const std::size_t end = groups * (me + 1) / workers * group;
  return {std::min(begin, n), std::min(end, n)};
}

Status start_threads(int n_threads) {
  LLM_CHECK(n_threads >= 1);
  static std::mutex mutex;
  static int known = 1;
  const std::lock_guard lock(mutex);
  if (n_threads <= known) return Ok{};
  LLM_RETURN_IF_ERROR(check_threads(n_threads));
  known = n_threads;
  return Ok{};
}

Status start_team(int n_threads) {
  LLM_RETURN_IF_ERROR(check_threads(n_threads));
  run_parallel(n_threads, [](Worker) {});
  return Ok{};
}

void end_team() { omp_pause_resource_all(omp_pause_soft); }

void run_parallel(int n_threads, const std::function<void(Worker)>& body) {
  LLM_CHECK(n_threads >= 1);
  if (const Status started = start_threads(n_threads); !started.ok())
    throw std::runtime_error(started.error().to_string());
  static const int cpus = available_cpus();
  std::exception_ptr thrown;
  std::atomic<bool> failed = false;
  // Regions of one seed draw different waits.
  if (random_waits) random_waits = mixed(*random_waits);
  static const bool passive = waits_passively();
  Team team(n_threads <= cpus && !passive, random_waits);
#pragma omp parallel num_threads(n_threads)
  {
    const FloatEnvironment contract;
    // OpenMP's own settings may give fewer threads than asked for.
    team.set_count(omp_get_num_threads());
    team.doze();
    // Nothing may leave the region: OpenMP ends the process then.
    try {
      body({omp_get_thread_num(), omp_get_num_threads(), &team});
    } catch (const Team::Abandoned&) {
      // Whoever abandoned the team has said why.
    } catch (...) {
      if (!failed.exchange(true)) thrown = std::current_exception();
      team.abandon();
    }
  }
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace llm
