// llmload: many requests at once, on this machine and in a simulation of it.

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "tools/common/progress.h"
#include "tools/common/tool.h"
#include "tools/hub/hub_model.h"
#include "tools/llmload/arguments.h"
#include "tools/llmload/calibration.h"
#include "tools/llmload/load_run.h"
#include "tools/llmload/real_run.h"
#include "tools/llmload/report.h"

namespace llm {
namespace {

/// What a run has to work with.
struct Load {
  LoadArguments& arguments;
  const ToolContext& context;
  std::shared_ptr<const Model> model;
  LengthDistribution lengths;
  LoadReport report;
  std::vector<StepSample> samples = {};  ///< of training loads
  std::vector<RealRun> runs = {};        ///< of the workload

  TextOptions text(std::uint64_t seed) const {
    TextOptions options{.sampling = arguments.sampling, .prompt_seed = seed};
    options.sampling.seed = seed;
    return options;
  }
  Result<RealRun> run(std::span<const LoadRequest> workload, const SchedulerOptions& scheduler,
                      std::uint64_t seed) const {
    return run_really(model, arguments.kv, workload, scheduler, text(seed));
  }
};

CalibrationSubject subject_of(const Model& model, const LoadArguments& a) {
  return {.model_sha256 = model.file_sha256(),
          .compute = model.compute() == Compute::kInt8 ? "int8" : "f32",
          .kv = std::string(kv_name(a.kv)),
          .cpu = std::string(cpu_name()),
          .isa = std::string(isa_name(model.isa())),
          .threads = model.threads(),
          .step_tokens = a.scheduler.step_tokens,
          .parallel = a.scheduler.parallel,
          .context = a.scheduler.context};
}

Status save(const Calibration& calibration, const std::string& path) {
  const std::string text = calibration.to_json();
  return write_file_atomically(path, std::as_bytes(std::span(text)));
}

Status read_costs(Load& load) {
  const LoadArguments& a = load.arguments;
  LoadReport& report = load.report;
  if (a.calibration.empty()) return Ok{};
  LLM_TRY(report.calibration, Calibration::read(a.calibration));
  const Status fits = report.calibration->check_fits(report.subject, a.mode != LoadMode::kSimulate);
  return fits.ok() ? fits : in_file(fits.error(), a.calibration);
}

/// Figures of requests that were all refused would say nothing.
Status check_finished(const LoadFigures& figures, const SchedulerOptions& options) {
  if (figures.finished > 0) return Ok{};
  return Error{ErrorCode::kUsage, "--kv-pages",
               fmt::format("found {}, which no request fits", options.kv_pages)};
}

/// Requests a second when all of a sample are there at once, by the step costs or by a run.
Result<double> most_rate(const Load& load) {
  constexpr std::size_t kSample = 200;
  const std::uint64_t seed = load.arguments.seed;
  const auto sample = make_workload({.rate = 1e9, .requests = kSample, .seed = seed}, load.lengths);
  SchedulerOptions options = load.report.scheduler;
  options.queue = kSample;
  LoadTrace trace;
  if (const auto& calibration = load.report.calibration) {
    LLM_TRY(trace, simulate_load(sample, options, calibration->costs, calibration->residuals));
  } else {
    LLM_TRY(RealRun run, load.run(sample, options, seed));
    trace = std::move(run.trace);
  }
  const LoadFigures figures = figures_of(trace);
  LLM_RETURN_IF_ERROR(check_finished(figures, options));
  return static_cast<double>(figures.finished) / figures.seconds;
}

Status choose_workload(Load& load) {
  const LoadArguments& a = load.arguments;
  WorkloadOptions& workload = load.report.workload;
  workload = {.arrivals = a.arrivals,
              .rate = a.rate,
              .burst = a.burst,
              .requests = a.requests,
              .seed = a.seed};
  if (load.context.options.given("duration")) workload.seconds = a.duration;
  if (load.context.options.given("rate")) return Ok{};
  LLM_TRY(const double most, most_rate(load));
  workload.rate = most * static_cast<double>(a.load) / 100;
  return Ok{};
}

void add_samples(std::vector<StepSample>& samples, const LoadTrace& trace) {
  for (const StepTrace& step : trace.steps)
    samples.push_back({step.shape, to_seconds(step.end - step.begin)});
}

Status train(Load& load, std::size_t round) {
  const WorkloadOptions options =
      training_load(load.report.workload, load.arguments.training, round);
  const auto workload = make_workload(options, load.lengths);
  LLM_TRY(const RealRun run, load.run(workload, load.report.scheduler, options.seed));
  add_samples(load.samples, run.trace);
  return Ok{};
}

/// The machine's speed drifts: trainings and runs take turns, so that both see all of it.
Status run_rounds(Load& load, std::span<const LoadRequest> workload) {
  const LoadArguments& a = load.arguments;
  LoadReport& report = load.report;
  const bool trains =
      !report.calibration && (a.mode != LoadMode::kReal || !a.save_calibration.empty());
  ProgressBar bar(!load.context.quiet(), "rounds");
  for (std::size_t round = 0; round < a.rounds; ++round) {
    bar("load", round, a.rounds);
    if (trains) LLM_RETURN_IF_ERROR(train(load, round));
    if (a.mode == LoadMode::kSimulate) continue;
    LLM_TRY(RealRun run, load.run(workload, report.scheduler, a.seed));
    report.real.push_back(figures_of(run.trace));
    LLM_RETURN_IF_ERROR(check_finished(report.real.back(), report.scheduler));
    LLM_TRY(const LoadTrace replay, replay_load(workload, report.scheduler, run.trace));
    report.same_decisions = report.same_decisions.value_or(true) && replay == run.trace;
    load.runs.push_back(std::move(run));
  }
  if (!load.runs.empty()) report.texts_sha256 = hash_of(load.runs.front().texts);
  if (!trains) return Ok{};
  LLM_TRY(report.calibration, calibrate(report.subject, load.samples));
  return a.save_calibration.empty() ? Ok{} : save(*report.calibration, a.save_calibration);
}

Status check_texts(Load& load, std::span<const LoadRequest> workload) {
  const LoadArguments& a = load.arguments;
  ProgressBar bar(!load.context.quiet(), "texts");
  LLM_TRY(load.report.differing_texts,
          differing_alone(load.model, a.kv, workload, load.report.scheduler, load.text(a.seed),
                          load.runs,
                          [&](std::size_t done, std::size_t total) { bar("alone", done, total); }));
  return Ok{};
}

/// Replicas differ in the residuals that are drawn.
Status simulate(Load& load, std::span<const LoadRequest> workload) {
  constexpr std::uint64_t kReplicas = 5;
  LoadReport& report = load.report;
  const Calibration& calibration = *report.calibration;
  for (std::uint64_t replica = 0; replica < kReplicas; ++replica) {
    LLM_TRY(const LoadTrace trace,
            simulate_load(workload, report.scheduler, calibration.costs, calibration.residuals,
                          load.arguments.seed + replica));
    report.simulated.push_back(figures_of(trace));
    LLM_RETURN_IF_ERROR(check_finished(report.simulated.back(), report.scheduler));
  }
  if (load.runs.empty()) return Ok{};
  std::vector<StepSample> steps;
  for (const RealRun& run : load.runs) add_samples(steps, run.trace);
  report.steps_fit = quality_of(calibration.costs, steps);
  return Ok{};
}

Result<int> run(LoadArguments& a, const ToolContext& context) {
  LLM_RETURN_IF_ERROR(check_load_arguments(a, context.options));
  if (!a.save_calibration.empty()) {
    const std::vector<std::string> read = {a.model, a.lengths};
    LLM_RETURN_IF_ERROR(check_output("--save-calibration", a.save_calibration, read));
  }
  LengthDistribution lengths = LengthDistribution::usual();
  if (!a.lengths.empty()) {
    LLM_TRY(lengths, LengthDistribution::read(a.lengths));
  }
  LLM_RETURN_IF_ERROR(fetch_hub_model(a.hub_model, context, a.model));
  LoadOptions options{.compute = a.compute, .isa = a.isa, .threads = a.threads};
  options.hash_file = true;
  ProgressBar bar(!context.quiet());
  options.progress = std::ref(bar);
  LLM_TRY(auto model, Model::load(a.model, options));
  bar.clear();
  for (const std::string& warning : model->warnings()) spdlog::warn("{}", warning);
  a.scheduler.context = lengths.longest_request();
  if (a.scheduler.context > model->config().context) {
    return Error{.code = ErrorCode::kResource,
                 .field = "--lengths",
                 .message = fmt::format("found a request of {} tokens, need at most {}",
                                        a.scheduler.context, model->config().context),
                 .hint = "the model was trained for no more"};
  }
  a.scheduler.kv_groups = KvGroups(model->config(), a.kv);
  if (a.scheduler.kv_pages == 0) {
    a.scheduler.kv_pages =
        a.scheduler.parallel * Scheduler::pages_for(a.scheduler, a.scheduler.context);
  }
  Load load{a, context, model, lengths, {}};
  load.report.model = a.model;
  load.report.scheduler = a.scheduler;
  load.report.subject = subject_of(*model, a);
  load.report.agree = static_cast<double>(a.agree) / 100;
  LLM_RETURN_IF_ERROR(read_costs(load));
  LLM_RETURN_IF_ERROR(choose_workload(load));
  LLM_RETURN_IF_ERROR(check_workload(load.report.workload));
  const auto workload = make_workload(load.report.workload, lengths);
  if (a.mode == LoadMode::kReal && !context.options.given("rounds")) a.rounds = 1;
  LLM_RETURN_IF_ERROR(run_rounds(load, workload));
  if (a.check) LLM_RETURN_IF_ERROR(check_texts(load, workload));
  if (a.mode != LoadMode::kReal) LLM_RETURN_IF_ERROR(simulate(load, workload));
  LLM_RETURN_IF_ERROR(write_stdout(a.json ? report_json(load.report) : report_text(load.report)));
  return load.report.passed() ? 0 : kExitVerdictFailed;
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  return llm::run_tool(argc, argv, llm::make_load_table, llm::run);
}
