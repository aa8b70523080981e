#include "base/thread_team.h"

#include <pthread.h>
#include <sys/resource.h>

#include <new>
#include <stdexcept>

#include "base/bounded_stack.h"
#include "base/float_environment.h"
#include "tests/support/host_float_mode.h"
#include "tests/support/test.h"

namespace llm {
TEST_CASE("shares are contiguous, disjoint, covering and even", "[base][thread_team]") {
  for (const std::size_t group : {1U, 2U, 16U, 48U}) {
    for (const int count : {1, 2, 3, 7, 64}) {
      for (std::size_t n = 0; n <= 200; ++n) {
        CAPTURE(group, count, n);
        std::size_t next = 0;
        std::size_t least = SIZE_MAX;
        std::size_t most = 0;
        for (int id = 0; id < count; ++id) {
          const auto range = Worker{id, count}.share(n, group);
          REQUIRE(range.begin == next);
          REQUIRE(range.end >= range.begin);
          REQUIRE((range.begin % group == 0 || range.begin == n));
          const std::size_t groups = (range.end - range.begin + group - 1) / group;
          least = std::min(least, groups);
          most = std::max(most, groups);
          next = range.end;
        }
        REQUIRE(next == n);
        REQUIRE(most - least <= 1);
      }
    }
  }
}

TEST_CASE("every worker runs once, with its own id", "[base][thread_team]") {
  for (const int n_threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(n_threads));
    std::atomic<int> wrong_count = 0;
    run_parallel(n_threads, [&](Worker worker) {
      ++runs[static_cast<std::size_t>(worker.id)];
      if (worker.count != n_threads) ++wrong_count;
    });
    CHECK(wrong_count == 0);
    for (const auto& run : runs) CHECK(run == 1);
  }
}

TEST_CASE("nobody passes the barrier before all have come", "[base][thread_team]") {
  constexpr int kThreads = 4;
  std::atomic<int> arrived = 0;
  std::atomic<int> early = 0;
  run_parallel(kThreads, [&](Worker worker) {
    for (int round = 1; round <= 100; ++round) {
      if (worker.id == round % kThreads) std::this_thread::yield();
      ++arrived;
      worker.barrier();
      if (arrived < round * kThreads) ++early;
      worker.barrier();
    }
  });
  CHECK(arrived == 100 * kThreads);
  CHECK(early == 0);
}

TEST_CASE("every task is taken once between two barriers, by whoever comes",
          "[base][thread_team]") {
  const auto check = [](int n_threads) {
    constexpr int kRounds = 20;
    std::vector<std::atomic<int>> taken(kRounds * 40);
    std::atomic<int> early = 0;
    run_parallel(n_threads, [&](Worker worker) {
      for (std::size_t round = 0; round < kRounds; ++round) {
        const std::size_t n = round * 2;
        worker.take_tasks(n, [&](std::size_t i) { ++taken[round * 40 + i]; });
        worker.barrier();
        for (std::size_t i = 0; i < n; ++i) early += taken[round * 40 + i] == 1 ? 0 : 1;
      }
    });
    for (std::size_t i = 0; i < taken.size(); ++i)
      REQUIRE(taken[i] == (i % 40 < i / 40 * 2 ? 1 : 0));
    REQUIRE(early == 0);
  };
  for (const int n_threads : {1, 2, 3, 5}) {
    check(n_threads);
    const RandomWaits waits(static_cast<std::uint64_t>(n_threads));
    check(n_threads);
  }
}

TEST_CASE("a worker's tasks follow each other, then it takes what others have not",
          "[base][thread_team]") {
  constexpr std::size_t kTasks = 31;
  for (const int n_threads : {1, 2, 3, 5}) {
    CAPTURE(n_threads);
    std::vector<std::vector<std::size_t>> taken(static_cast<std::size_t>(n_threads));
    run_parallel(n_threads, [&](Worker worker) {
      auto& mine = taken[static_cast<std::size_t>(worker.id)];
      for (int i = 0; i < 3; ++i) mine.push_back(worker.team->take_task(worker.id, kTasks));
      worker.barrier();
      worker.barrier();
      if (worker.id == n_threads - 1)
        worker.take_tasks(kTasks, [&](std::size_t i) { mine.push_back(i); });
    });
    for (int id = 0; id < n_threads; ++id) {
      const auto& mine = taken[static_cast<std::size_t>(id)];
      const std::size_t first = Worker{id, n_threads}.share(kTasks).begin;
      for (std::size_t i = 0; i < 3; ++i) CHECK(mine[i] == first + i);
    }
    auto& all = taken.back();
    REQUIRE(all.size() == 3 + kTasks);
    std::sort(all.begin() + 3, all.end());
    for (std::size_t i = 0; i < kTasks; ++i) CHECK(all[3 + i] == i);
  }
}

TEST_CASE("random waits deal the tasks out in other ways", "[base][thread_team]") {
  // Who takes what, one digit a task.
  const auto dealt = [](std::uint64_t seed) {
    const RandomWaits waits(seed);
    std::string taker(12, '?');
    run_parallel(3, [&](Worker worker) {
      worker.take_tasks(taker.size(),
                        [&](std::size_t i) { taker[i] = static_cast<char>('0' + worker.id); });
    });
    return taker;
  };
  std::set<std::string> ways;
  // On a busy machine one worker often takes all before the others have started.
  for (std::uint64_t seed = 0; seed < 1000 && ways.size() <= 10; ++seed) ways.insert(dealt(seed));
  CHECK(ways.size() > 10);
}

TEST_CASE("what a worker throws reaches the caller, and nobody waits for it",
          "[base][thread_team]") {
  for (const int n_threads : {1, 2, 3, 7}) {
    for (int thrower = 0; thrower < n_threads; ++thrower) {
      for (const int round : {0, 1, 2, 5}) {
        CAPTURE(n_threads, thrower, round);
        std::atomic<int> finished = 0;
        std::string caught;
        try {
          run_parallel(n_threads, [&](Worker worker) {
            for (int i = 0; i < 5; ++i) {
              if (worker.id == thrower && i == round) throw std::runtime_error("out of it");
              worker.barrier();
            }
            if (worker.id == thrower && round == 5) throw std::bad_alloc();
            ++finished;
          });
        } catch (const std::runtime_error& error) {
          caught = error.what();
        } catch (const std::bad_alloc&) {
          caught = "memory";
        }
        CHECK(caught == (round == 5 ? "memory" : "out of it"));
        // Behind the last barrier some may still be leaving it when they hear.
        CHECK(finished <= (round == 5 ? n_threads - 1 : 0));
      }
    }
  }
  // All at once; the next region is whole again.
  CHECK_THROWS_AS(run_parallel(4, [](Worker) { throw std::bad_alloc(); }), std::bad_alloc);
  std::atomic<int> runs = 0;
  run_parallel(4, [&](Worker worker) {
    worker.barrier();
    ++runs;
  });
  CHECK(runs == 4);
}

TEST_CASE("random waits show a missing barrier and change nothing else", "[base][thread_team]") {
  constexpr int kThreads = 3;
  // Every worker writes its slot, then looks whether all are written.
  const auto incomplete_rounds = [](bool has_barrier) {
    int incomplete = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const RandomWaits waits(seed);
      std::vector<std::atomic<int>> slots(kThreads);
      std::atomic<int> missing = 0;
      run_parallel(kThreads, [&](Worker worker) {
        slots[static_cast<std::size_t>(worker.id)] = 1;
        if (has_barrier) worker.barrier();
        for (const auto& slot : slots) missing += 1 - slot;
      });
      incomplete += missing > 0 ? 1 : 0;
    }
    return incomplete;
  };
  CHECK(incomplete_rounds(true) == 0);
  CHECK(incomplete_rounds(false) > 10);
}

TEST_CASE("available CPUs are at least one and at most the machine's", "[base][thread_team]") {
  CHECK(available_cpus() >= 1);
  CHECK(available_cpus() <= static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
}

TEST_CASE("a region inside a region has one worker", "[base][thread_team]") {
  std::atomic<int> inner = 0;
  std::atomic<int> more = 0;
  for (int round = 0; round < 20; ++round) {
    run_parallel(3, [&](Worker worker) {
      run_parallel(2, [&](Worker alone) {
        ++inner;
        more += alone.count - 1;
      });
      worker.barrier();
    });
  }
  CHECK(inner == 60);
  CHECK(more == 0);
}

TEST_CASE("threads that cannot be started are an error, and the others continue",
          "[base][thread_team]") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  end_team();
  // A stack has 8 MiB of addresses.
  const rlimit tight = {.rlim_cur = std::size_t{1} << 30, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &tight) == 0);
  const Status refused = start_threads(5000);
  std::string thrown;
  try {
    run_parallel(5000, [](Worker) {});
  } catch (const std::runtime_error& error) {
    thrown = error.what();
  }
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kResource);
  CHECK(refused.error().to_string().find("need 5000") != std::string::npos);
  CHECK(thrown.find("need 5000") != std::string::npos);
  std::atomic<int> runs = 0;
  run_parallel(2, [&](Worker) { ++runs; });
  CHECK(runs == 2);
  end_team();
}

namespace {

using test::HostFloatMode;
using test::same_bits;

/// 1e6 as f16 by the CPU's own conversion: infinity, except on ARM in its other format.
float largest_half() {
#if defined(__aarch64__)
  volatile float large = 1e6F;
  volatile __fp16 half = static_cast<__fp16>(large);
  return half;
#else
  return std::numeric_limits<float>::infinity();
#endif
}

/// Results that depend on the rounding, on flushing results, on flushing operands and on the format
/// of f16.
std::array<float, 4> sensitive() {
  volatile float one = 1;
  volatile float three = 3;
  volatile float smallest = std::numeric_limits<float>::min();
  volatile float denormal = std::numeric_limits<float>::denorm_min();
  return {-one / three, smallest / three, denormal * three, largest_half()};
}

}  // namespace

TEST_CASE("the host's float mode is set aside and comes back", "[base][float_environment]") {
  const auto expected = sensitive();
  const HostFloatMode host;
  REQUIRE(HostFloatMode::stands());
  REQUIRE(!same_bits(sensitive(), expected));
  {
    const FloatEnvironment contract;
    REQUIRE(same_bits(sensitive(), expected));
  }
  REQUIRE(HostFloatMode::stands());
}

TEST_CASE("workers compute the same in any host's float mode", "[base][float_environment]") {
  const auto expected = sensitive();
  for (const int n_threads : {1, 2, 5}) {
    CAPTURE(n_threads);
    const HostFloatMode host;
    std::vector<std::array<float, 4>> found(static_cast<std::size_t>(n_threads));
    run_parallel(n_threads,
                 [&](Worker worker) { found[static_cast<std::size_t>(worker.id)] = sensitive(); });
    CHECK(HostFloatMode::stands());
    for (const auto& values : found) CHECK(same_bits(values, expected));
  }
}

TEST_CASE("work has the stack that it asks for", "[base]") {
  for (const std::size_t bytes : {std::size_t{256} << 10, std::size_t{16} << 20}) {
    std::size_t found = 0;
    test::require_ok(run_on_stack(bytes, [&] {
      pthread_attr_t attributes;
      REQUIRE(pthread_getattr_np(pthread_self(), &attributes) == 0);
      pthread_attr_getstacksize(&attributes, &found);
      pthread_attr_destroy(&attributes);
    }));
    CHECK(found >= bytes);
    CHECK(found < 2 * bytes);
  }
}

TEST_CASE("what work throws is thrown where it was given", "[base]") {
  CHECK_THROWS_AS(run_on_stack(std::size_t{256} << 10, [] { throw std::out_of_range("x"); }).ok(),
                  std::out_of_range);
}

TEST_CASE("bad input 96: a thread that cannot be started is an error", "[base]") {
  bool was_begun = false;
  const Status refused = run_on_stack(std::size_t{1} << 50, [&] { was_begun = true; });
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kResource);
  CHECK_THAT(refused.error().to_string(),
             Contains("threads: cannot start a thread with a stack of ") && Contains(" KiB: "));
  CHECK(!was_begun);
}

}  // namespace llm
