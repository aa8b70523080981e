#include "bench/peaks.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/thread_team.h"
#include "bench/peak_kernels.h"

namespace llm {

extern const PeakKernels kPeakScalar;
#define LLM_ISA(name) extern const PeakKernels kPeak##name;
#include "base/built_isas.inc"
#undef LLM_ISA

namespace {

constexpr const PeakKernels* kTables[] = {
    &kPeakScalar,
#define LLM_ISA(name) &kPeak##name,
#include "base/built_isas.inc"
#undef LLM_ISA
};

using Clock = std::chrono::steady_clock;

constexpr std::size_t kReadBytes = std::size_t{512} << 20;
constexpr std::size_t kReadGroup = 1024;  // of PeakKernels::read
constexpr int kReadPasses = 2;

/// Seconds from the first worker's start to the last one's end. Workers start together.
double timed(int n_threads, const std::function<void(Worker)>& body) {
  std::vector<Clock::time_point> begins(static_cast<std::size_t>(n_threads),
                                        Clock::time_point::max());
  std::vector<Clock::time_point> ends(static_cast<std::size_t>(n_threads),
                                      Clock::time_point::min());
  run_parallel(n_threads, [&](Worker worker) {
    const auto id = static_cast<std::size_t>(worker.id);
    worker.barrier();
    begins[id] = Clock::now();
    body(worker);
    ends[id] = Clock::now();
  });
  return std::chrono::duration<double>(*std::ranges::max_element(ends) -
                                       *std::ranges::min_element(begins))
      .count();
}

/// Word i of the memory holds i; the sum of words [begin, end) is then known, modulo 2^32.
std::uint32_t expected_sum(std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t n = end - begin;
  const std::uint64_t first_and_last = begin + end - 1;
  // One of the two factors is even.
  const std::uint64_t half = n % 2 == 0 ? n / 2 * first_and_last : first_and_last / 2 * n;
  return n == 0 ? 0 : static_cast<std::uint32_t>(half);
}

void fill(int n_threads, std::span<std::byte> memory) {
  run_parallel(n_threads, [&](Worker worker) {
    const auto [begin, end] = worker.share(memory.size(), kReadGroup);
    for (std::size_t at = begin; at < end; at += 4) {
      const auto word = static_cast<std::uint32_t>(at / 4);
      std::memcpy(memory.data() + at, &word, 4);
    }
  });
}

double read_rate(const PeakKernels& kernels, int n_threads, std::span<const std::byte> memory) {
  double best = 0;
  for (int pass = 0; pass < kReadPasses; ++pass) {
    for (const int n_streams : {1, 2, 4}) {
      const double seconds = timed(n_threads, [&](Worker worker) {
        const auto [begin, end] = worker.share(memory.size(), kReadGroup);
        const auto sum = kernels.read(memory.data() + begin, end - begin, n_streams);
        LLM_CHECK(sum == expected_sum(begin / 4, end / 4));
      });
      best = std::max(best, static_cast<double>(memory.size()) / seconds * 1e-9);
    }
  }
  return best;
}

/// Rounds that take one thread some milliseconds: long against the start of a team.
std::uint64_t enough_rounds(const PeakKernels& kernels) {
  constexpr double kEnoughSeconds = 0.005;
  std::uint64_t rounds = 4096;
  while (timed(1, [&](Worker) { LLM_CHECK(kernels.dot(rounds).macs > 0); }) < kEnoughSeconds) {
    rounds *= 2;
  }
  return rounds;
}

double dot_rate(const PeakKernels& kernels, int n_threads, std::uint64_t rounds) {
  constexpr int kDotPasses = 8;
  double best = 0;
  for (int pass = 0; pass < kDotPasses; ++pass) {
    std::vector<std::uint64_t> macs(static_cast<std::size_t>(n_threads), 0);
    const double seconds = timed(n_threads, [&](Worker worker) {
      const DotRun run = kernels.dot(rounds);
      LLM_CHECK(run.sum == run.expected);
      macs[static_cast<std::size_t>(worker.id)] = run.macs;
    });
    double total = 0;
    for (const std::uint64_t count : macs) total += static_cast<double>(count);
    best = std::max(best, total / seconds * 1e-9);
  }
  return best;
}

void raise(double& best, double rate) { best = std::max(best, rate); }

}  // namespace

const PeakKernels* peak_kernels(Isa isa) {
  for (const PeakKernels* table : kTables) {
    if (table->isa == isa) return table;
  }
  return nullptr;
}

Status PeakMeter::measure() {
  {
    LLM_TRY(auto memory, AlignedBuffer<std::byte>::allocate(kReadBytes, "bandwidth measurement"));
    fill(n_threads_, memory.span());
    const PeakKernels& widest = *peak_kernels(best_isa());
    raise(best_.read_gb_per_s_one_thread, read_rate(widest, 1, memory.span()));
    raise(best_.read_gb_per_s, read_rate(widest, n_threads_, memory.span()));
  }
  const PeakKernels& kernels = *peak_kernels(isa_);
  const std::uint64_t rounds = enough_rounds(kernels);
  raise(best_.dot_gmac_per_s_one_thread, dot_rate(kernels, 1, rounds));
  raise(best_.dot_gmac_per_s, dot_rate(kernels, n_threads_, rounds));
  return Ok{};
}

}  // namespace llm
