// llmbench: how fast a model loads, reads prompts and generates, against what the machine can do.

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <functional>
#include <optional>

#include "base/thread_team.h"
#include "tools/common/progress.h"
#include "tools/common/signals.h"
#include "tools/common/tool.h"
#include "tools/llmbench/arguments.h"
#include "tools/llmbench/report.h"
#include "tools/llmbench/runner.h"
#include "tools/llmbench/synthetic_file.h"

namespace llm {
namespace {

Result<Isa> chosen_isa(const BenchArguments& arguments) {
  const Isa isa = arguments.isa.value_or(best_isa());
  if (isa_supported(isa)) return isa;
  return Error{ErrorCode::kUnsupported, "--isa", isa_missing(isa)};
}

Result<NamelessFile> synthesize(const BenchArguments& arguments, const ToolContext& context) {
  ProgressBar bar(!context.quiet(), "weights");
  return make_synthetic_file({.shape = *find_synthetic_shape(arguments.synthetic),
                              .recipe = find_recipe(arguments.type),
                              .threads = available_cpus(),
                              .progress = [&](std::uint64_t done, std::uint64_t total) {
                                bar("synthesize", done, total);
                              }});
}

Status measure_model(const BenchArguments& arguments, const ToolContext& context,
                     const std::string& path, BenchReport& report) {
  LLM_TRY(report.model, describe_model(path));
  ProgressBar bar(!context.quiet());
  const GracefulInterrupt graceful;
  BenchRunner runner(path, make_plan(arguments.lists),
                     {.isa = report.peak_isa,
                      .kv = arguments.kv,
                      .compute = arguments.compute,
                      .repetitions = arguments.repetitions,
                      .peaks = !arguments.no_peaks,
                      .profile = arguments.profile,
                      .packed_cache = arguments.packed_cache,
                      .progress = std::ref(bar)});
  LLM_RETURN_IF_ERROR(runner.run());
  report.model.weight_bytes = runner.weight_bytes();
  report.measurements = runner.measurements();
  report.peaks = runner.peaks();
  return Ok{};
}

Status measure_peaks_alone(const BenchArguments& arguments, BenchReport& report) {
  for (const int asked : arguments.lists.threads) {
    const int threads = asked > 0 ? asked : available_cpus();
    report.peaks.try_emplace(threads, report.peak_isa, threads);
  }
  for (int round = 0; round < arguments.repetitions; ++round) {
    for (auto& [threads, meter] : report.peaks) LLM_RETURN_IF_ERROR(meter.measure());
  }
  return Ok{};
}

Result<int> run(BenchArguments& arguments, const ToolContext& context) {
  LLM_RETURN_IF_ERROR(complete_bench(arguments, context));
  BenchReport report;
  report.show_peaks = arguments.show_peaks;
  LLM_TRY(report.peak_isa, chosen_isa(arguments));
  if (!arguments.compare.empty()) {
    LLM_TRY(report.baseline, Baseline::read(arguments.compare));
  }
  int exit_code = 0;
  if (!arguments.synthetic.empty()) {
    LLM_TRY(const NamelessFile file, synthesize(arguments, context));
    LLM_RETURN_IF_ERROR(measure_model(arguments, context, file.path(), report));
    exit_code = GracefulInterrupt::exit_code();
  } else if (!arguments.model.empty()) {
    LLM_RETURN_IF_ERROR(measure_model(arguments, context, arguments.model, report));
    exit_code = GracefulInterrupt::exit_code();
  } else {
    LLM_RETURN_IF_ERROR(measure_peaks_alone(arguments, report));
  }
  if (report.baseline) {
    for (const Measurement& m : report.measurements) {
      if (report.baseline->compare(report.model, m)) continue;
      spdlog::warn("{}: no row for {} of this model, type, threads, ISA and KV type",
                   arguments.compare, m.test.name());
    }
  }
  LLM_RETURN_IF_ERROR(write_stdout(
      arguments.format == BenchFormat::kJson ? report_json(report) : report_markdown(report)));
  return exit_code;
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  return llm::run_tool(argc, argv, llm::make_bench_table, llm::run);
}
