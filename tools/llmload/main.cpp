// llmload: many requests at once, on this machine and in a simulation of it.

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "tools/common/progress.h"
#include "tools/common/tool.h"
#include "tools/hub/hub_model.h"
#include "tools/llmload/arguments.h"
#include "tools/llmload/load_run.h"
#include "tools/llmload/real_run.h"
#include "tools/llmload/report.h"

namespace llm {
namespace {

/// What a run has to work with.
class LoadTool {
 public:
  LoadTool(const LoadArguments& arguments, const ToolContext& context,
           std::shared_ptr<const Model> model, LengthDistribution lengths)
      : a_(arguments), context_(context), model_(std::move(model)), lengths_(std::move(lengths)) {}

  Result<LoadReport> run() {
    LLM_RETURN_IF_ERROR(choose_workload());
    const auto workload = make_workload(options_, lengths_);
    LLM_RETURN_IF_ERROR(run_rounds(workload));
    if (a_.check) LLM_RETURN_IF_ERROR(check_texts(workload));
    if (a_.mode != LoadMode::kReal) LLM_RETURN_IF_ERROR(simulate(workload));
    report_.settings = settings();
    report_.agree = static_cast<double>(a_.agree) / 100;
    return std::move(report_);
  }

 private:
  TextOptions text(std::uint64_t seed) const {
    TextOptions options{.sampling = a_.sampling, .prompt_seed = seed};
    options.sampling.seed = seed;
    return options;
  }
  Result<RealRun> run_with(std::span<const LoadRequest> workload, const SchedulerOptions& scheduler,
                           std::uint64_t seed) const {
    return run_really(model_, a_.kv, workload, scheduler, text(seed));
  }

  /// Errors: kUsage where all requests were refused, since figures would say nothing.
  Result<LoadFigures> figures(const LoadTrace& trace) const {
    LoadFigures all = figures_of(trace);
    if (value_of(all, "finished") > 0) return all;
    return usage_error("--kv-pages", fmt::format("found {}, which is too small for every request",
                                                 a_.scheduler.kv_pages));
  }

  Status choose_workload() {
    options_ = {.arrivals = a_.arrivals,
                .rate = a_.rate,
                .burst = a_.burst,
                .requests = a_.requests,
                .seed = a_.seed};
    if (context_.options.given("duration")) options_.seconds = a_.duration;
    if (!context_.options.given("rate")) {
      LLM_TRY(const double most, most_rate());
      options_.rate = most * static_cast<double>(a_.load) / 100;
    }
    return check_workload(options_);
  }

  /// Requests a second when all of a sample are there at once.
  Result<double> most_rate() const {
    constexpr std::size_t kSample = 200;
    const auto sample =
        make_workload({.rate = 1e9, .requests = kSample, .seed = a_.seed}, lengths_);
    SchedulerOptions scheduler = a_.scheduler;
    scheduler.queue = kSample;
    LLM_TRY(const RealRun run, run_with(sample, scheduler, a_.seed));
    LLM_TRY(const LoadFigures found, figures(run.trace));
    return value_of(found, "finished") / value_of(found, "seconds");
  }

  /// The machine's speed drifts: trainings and runs take turns, so that both see all of it.
  Status run_rounds(std::span<const LoadRequest> workload) {
    ProgressBar bar(!context_.quiet(), "rounds");
    std::vector<LoadFigures> rounds;
    for (std::size_t round = 0; round < a_.rounds; ++round) {
      bar("load", round, a_.rounds);
      if (a_.mode != LoadMode::kReal) {
        const WorkloadOptions options = training_load(options_, a_.training, round);
        // Refused requests have no steps to measure: a short queue would leave too few.
        SchedulerOptions scheduler = a_.scheduler;
        scheduler.queue = std::max(scheduler.queue, a_.training);
        LLM_TRY(const RealRun run,
                run_with(make_workload(options, lengths_), scheduler, options.seed));
        add_samples(samples_, run.trace);
      }
      if (a_.mode == LoadMode::kSimulate) continue;
      LLM_TRY(RealRun run, run_with(workload, a_.scheduler, a_.seed));
      LLM_TRY(rounds.emplace_back(), figures(run.trace));
      LLM_TRY(const LoadTrace replay, replay_load(workload, a_.scheduler, run.trace));
      report_.same_decisions = report_.same_decisions.value_or(true) && replay == run.trace;
      runs_.push_back(std::move(run));
    }
    report_.real = medians(rounds);
    if (!runs_.empty()) report_.texts_sha256 = hash_of(runs_.front().texts);
    return Ok{};
  }

  static void add_samples(std::vector<StepSample>& samples, const LoadTrace& trace) {
    for (const StepTrace& step : trace.steps)
      samples.push_back({step.shape, to_seconds(step.end - step.begin)});
  }

  Status check_texts(std::span<const LoadRequest> workload) {
    ProgressBar bar(!context_.quiet(), "texts");
    LLM_TRY(
        report_.differing_texts,
        differing_alone(model_, a_.kv, workload, a_.scheduler, text(a_.seed), runs_,
                        [&](std::size_t done, std::size_t total) { bar("alone", done, total); }));
    return Ok{};
  }

  /// Replicas differ in the residuals that are drawn.
  Status simulate(std::span<const LoadRequest> workload) {
    constexpr std::uint64_t kReplicas = 5;
    LLM_TRY(const CostModel costs, CostModel::fit(samples_));
    const Residuals residuals = Residuals::of(costs, samples_);
    std::vector<LoadFigures> replicas;
    for (std::uint64_t replica = 0; replica < kReplicas; ++replica) {
      LLM_TRY(const LoadTrace trace,
              simulate_load(workload, a_.scheduler, costs, residuals, a_.seed + replica));
      LLM_TRY(replicas.emplace_back(), figures(trace));
    }
    report_.simulated = medians(replicas);
    report_.costs = costs;
    report_.fit = quality_of(costs, samples_);
    std::vector<StepSample> steps;
    for (const RealRun& run : runs_) add_samples(steps, run.trace);
    if (!steps.empty()) report_.real_fit = quality_of(costs, steps);
    return Ok{};
  }

  OrderedJson settings() const {
    return {{"model", a_.model},
            {"model_sha256", model_->file_sha256()},
            {"cpu", cpu_name()},
            {"isa", isa_name(model_->isa())},
            {"threads", model_->threads()},
            {"compute", a_.compute == Compute::kInt8 ? "int8" : "f32"},
            {"kv", kv_name(a_.kv)},
            {"arrivals", a_.arrivals == Arrivals::kBurst ? "burst" : "poisson"},
            {"burst", a_.burst},
            {"rate", options_.rate},
            {"seed", a_.seed},
            {"parallel", a_.scheduler.parallel},
            {"chunk", a_.scheduler.step_tokens},
            {"kv_pages", a_.scheduler.kv_pages},
            {"queue", a_.scheduler.queue},
            {"rounds", a_.rounds}};
  }

  const LoadArguments& a_;
  const ToolContext& context_;
  std::shared_ptr<const Model> model_;
  LengthDistribution lengths_;
  WorkloadOptions options_;
  LoadReport report_;
  std::vector<StepSample> samples_;  ///< of training loads
  std::vector<RealRun> runs_;        ///< of the workload
};

Result<int> run(LoadArguments& a, const ToolContext& context) {
  LLM_RETURN_IF_ERROR(check_load_arguments(a, context.options));
  LLM_TRY(LengthDistribution lengths, LengthDistribution::parse(a.lengths));
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
  if (a.mode == LoadMode::kReal && !context.options.given("rounds")) a.rounds = 1;
  LLM_TRY(const LoadReport report,
          LoadTool(a, context, std::move(model), std::move(lengths)).run());
  LLM_RETURN_IF_ERROR(write_stdout(a.json ? report_json(report) : report_text(report)));
  return report.passed() ? 0 : kExitVerdictFailed;
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  return llm::run_tool(argc, argv, llm::make_load_table, llm::run);
}
