#include <fmt/core.h>

#include <chrono>

#include "bench/kernel_bench.h"
#include "quant/formats/quantize/quantize_row.h"
#include "quant/kernels/matmul.h"

namespace llm {
namespace {

struct Shape {
  std::size_t rows;
  std::size_t cols;
};

/// More than any cache: products of one token shall read memory.
constexpr std::size_t kColdBytes = std::size_t{256} << 20;

/// Enough equal matrices that together they do not fit into the caches, or one.
std::vector<PackedMatrix> make_matrices(WeightType type, Shape shape, bool cold) {
  std::vector<float> row(shape.cols);
  std::vector<std::byte> file(shape.rows * row_bytes(type, shape.cols));
  for (std::size_t r = 0; r < shape.rows; ++r) {
    fill_noise(row, r + 1);
    quantize_row(
        type, row,
        std::span(file).subspan(r * row_bytes(type, shape.cols), row_bytes(type, shape.cols)));
  }
  std::vector<PackedMatrix> matrices;
  do {
    auto packed = PackedMatrix::pack(type, shape.rows, shape.cols, file, "benchmark");
    LLM_CHECK(packed.ok());
    matrices.push_back(std::move(packed).value());
  } while (cold && matrices.size() * matrices[0].bytes() < kColdBytes);
  return matrices;
}

/// One iteration multiplies each matrix once by the same T tokens, on all threads.
void run_matmul(benchmark::State& state, const BenchContext& context, WeightType type, Isa isa,
                Shape shape, std::size_t n_tokens) {
  const KernelTable& kernels = *kernel_table(isa);
  const auto matrices = make_matrices(type, shape, n_tokens == 1);
  auto x = allocate_or_exit<float>(n_tokens * shape.cols);
  fill_noise(x.span(), 7);
  const ActivationFormat format = activation_format(type);
  auto memory = allocate_or_exit<std::byte>(ActivationMatrix::bytes(format, n_tokens, shape.cols));
  ActivationMatrix input(memory.span(), format, n_tokens, shape.cols);
  for (std::size_t t = 0; t < n_tokens; ++t) {
    input.store(kernels, t, x.span().subspan(t * shape.cols, shape.cols));
  }
  auto y = allocate_or_exit<float>(n_tokens * shape.rows);
  std::vector<Workspace> workspaces;
  for (int i = 0; i < context.threads; ++i) {
    workspaces.push_back(allocate_or_exit<std::byte>(matmul_workspace_bytes(n_tokens)));
  }
  double seconds = 0;
  for (auto _ : state) {
    const auto started = std::chrono::steady_clock::now();
    run_parallel(context.threads, [&](Worker worker) {
      for (const PackedMatrix& w : matrices) {
        const RowTasks tasks(w, n_tokens, worker.count);
        worker.take_tasks(tasks.size(), [&](std::size_t i) {
          matmul(kernels, w, tasks[i], input, y.data(), shape.rows, Epilogue::kStore,
                 workspaces[static_cast<std::size_t>(worker.id)]);
        });
        worker.barrier();
      }
    });
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
    seconds += elapsed.count();
  }
  const Peaks& peaks = peaks_of(context, isa);
  const double products =
      static_cast<double>(matrices.size()) * static_cast<double>(state.iterations());
  const double gb_per_s = products * static_cast<double>(matrices[0].bytes()) / seconds * 1e-9;
  const double gmac_per_s =
      products * static_cast<double>(shape.rows * shape.cols * n_tokens) / seconds * 1e-9;
  if (n_tokens == 1) {
    state.counters["GB_per_s"] = gb_per_s;
    state.counters["of_read_peak"] = gb_per_s / peaks.read_gb_per_s;
  } else {
    state.counters["GMAC_per_s"] = gmac_per_s;
    state.counters["of_dot_peak"] = gmac_per_s / peaks.dot_gmac_per_s;
  }
}

}  // namespace

void register_matmul(const BenchContext& context) {
  for (const BlockTraits& traits : all_block_traits()) {
    if (!is_quantization_target(traits.type)) continue;
    for (const Isa isa : isas_here()) {
      for (const Shape shape : {Shape{2048, 2048}, Shape{2048, 5632}}) {
        for (const std::size_t n_tokens : {1, 512}) {
          const std::string name = fmt::format("Matmul/{}/{}/{}x{}/T:{}", traits.name,
                                               isa_name(isa), shape.rows, shape.cols, n_tokens);
          benchmark::RegisterBenchmark(name.c_str(),
                                       [=](benchmark::State& state) {
                                         run_matmul(state, context, traits.type, isa, shape,
                                                    n_tokens);
                                       })
              ->UseRealTime()
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
}

}  // namespace llm
