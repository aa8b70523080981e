// kernel_bench: the engine's kernels alone, per weight type and instruction set, against what this
// machine can do. Options are Google Benchmark's, and --threads=N for the matrix products.

#include "bench/kernel_bench.h"

#include <fmt/core.h>

#include <cstdlib>
#include <map>
#include <string_view>

#include "base/thread_team.h"
#include "quant/kernels/kernel_table.h"

namespace llm {

const Peaks& peaks_of(const BenchContext& context, Isa isa) {
  static std::map<Isa, Peaks> measured;
  const auto known = measured.find(isa);
  if (known != measured.end()) return known->second;
  PeakMeter meter(isa, context.threads);
  for (int round = 0; round < 3; ++round) LLM_CHECK(meter.measure().ok());
  return measured[isa] = meter.best();
}

std::vector<Isa> isas_here() {
  std::vector<Isa> isas;
  for (const Isa isa : all_isas()) {
    if (isa_supported(isa) && kernel_table(isa) != nullptr) isas.push_back(isa);
  }
  return isas;
}

void fill_noise(std::span<float> values, std::uint64_t seed) {
  std::uint64_t state = seed;
  for (float& value : values) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;  // Knuth, MMIX
    value = static_cast<float>(static_cast<std::int64_t>(state) >> 32) * 0x1p-31F;
  }
}

namespace {

/// Takes --threads=N out of the arguments; 0 where it has no sense.
int take_threads(int& argc, char** argv) {
  constexpr std::string_view kOption = "--threads=";
  int threads = available_cpus();
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with(kOption)) {
      threads = std::atoi(argv[i] + kOption.size());
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  return threads >= 1 && threads <= 256 ? threads : 0;
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  llm::BenchContext context;
  context.threads = llm::take_threads(argc, argv);
  if (context.threads == 0) {
    fmt::print(stderr, "kernel_bench: error: --threads: need an integer in 1..256\n");
    return 2;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("cpu", std::string(llm::cpu_name()));
  benchmark::AddCustomContext("threads of products", fmt::format("{}", context.threads));
  benchmark::AddCustomContext("compiler and flags", LLM_BENCH_FLAGS);
  benchmark::AddCustomContext("commit", LLM_BENCH_COMMIT);
  llm::register_matmul(context);
  llm::register_float_ops();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
