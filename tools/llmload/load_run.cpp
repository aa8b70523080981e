#include "tools/llmload/load_run.h"

#include <algorithm>
#include <utility>

#include "engine/sampler/sampler.h"

namespace llm {
namespace {

class Simulation final : public LoadBackend {
 public:
  Simulation(const CostModel& costs, const Residuals& residuals, std::uint64_t seed)
      : costs_(costs), residuals_(residuals), seed_(seed) {}
  Nanoseconds wait_until(Nanoseconds time) override { return time; }
  Result<Nanoseconds> run(const Step&, const StepShape& shape, Nanoseconds now) override {
    constexpr std::uint64_t kResiduals = 0x726573;  // sequence of uniform_draw()
    const double predicted = costs_.predict(shape);
    const double factor = residuals_.at(predicted, uniform_draw(seed_, kResiduals, step_++));
    return now + from_seconds(predicted * factor);
  }

 private:
  const CostModel& costs_;
  const Residuals& residuals_;
  std::uint64_t seed_;
  std::uint64_t step_ = 0;
};

class Replay final : public LoadBackend {
 public:
  explicit Replay(const LoadTrace& measured) : measured_(measured) {}
  Nanoseconds wait_until(Nanoseconds time) override {
    return wake_ < measured_.wakes.size() ? std::max(time, measured_.wakes[wake_++]) : time;
  }
  Result<Nanoseconds> run(const Step&, const StepShape&, Nanoseconds now) override {
    if (step_ == measured_.steps.size()) return now;  // other decisions than the measured ones
    const StepTrace& step = measured_.steps[step_++];
    return now + (step.end - step.begin);
  }

 private:
  const LoadTrace& measured_;
  std::size_t step_ = 0;
  std::size_t wake_ = 0;
};

}  // namespace

Result<LoadTrace> run_load(std::span<const LoadRequest> workload, const SchedulerOptions& options,
                           LoadBackend& backend) {
  LLM_TRY(Scheduler scheduler, Scheduler::create(options));
  LoadTrace trace;
  Nanoseconds now = {};
  bool idle = true;
  while (true) {
    while (trace.requests.size() < workload.size() &&
           workload[trace.requests.size()].arrival <= now) {
      const RequestId id = trace.requests.size();
      const LoadRequest& request = workload[id];
      trace.requests.push_back(
          {.admission = scheduler.submit(id, request.n_prompt, request.n_output),
           .arrival = request.arrival,
           .n_prompt = request.n_prompt});
    }
    const Step step = scheduler.next();
    if (step.parts.empty()) {
      if (trace.requests.size() == workload.size()) break;
      now = backend.wait_until(workload[trace.requests.size()].arrival);
      trace.wakes.push_back(now);
      idle = true;
      continue;
    }
    const Nanoseconds begin = now;
    StepShape shape = shape_of(step);
    shape.after_idle = std::exchange(idle, false);
    LLM_TRY(now, backend.run(step, shape, begin));
    trace.steps.push_back({begin, now, shape});
    for (const StepPart& part : step.parts) {
      RequestTrace& request = trace.requests[part.id];
      if (part.first == 0 && request.started == Nanoseconds{}) request.started = begin;
      if (part.wants_logits) request.tokens.push_back(now);
    }
    for (const RequestId id : scheduler.complete()) backend.close(id);
  }
  trace.preemptions = scheduler.preemptions();
  return trace;
}

Result<LoadTrace> simulate_load(std::span<const LoadRequest> workload,
                                const SchedulerOptions& options, const CostModel& costs,
                                const Residuals& residuals, std::uint64_t seed) {
  Simulation simulation(costs, residuals, seed);
  return run_load(workload, options, simulation);
}

Result<LoadTrace> replay_load(std::span<const LoadRequest> workload,
                              const SchedulerOptions& options, const LoadTrace& measured) {
  Replay replay(measured);
  return run_load(workload, options, replay);
}

}  // namespace llm
