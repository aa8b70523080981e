#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/batching/scheduler.h"
#include "tools/llmload/cost_model.h"
#include "tools/llmload/workload.h"

namespace llm {

/// What became of a request.
struct RequestTrace {
  Admission admission = Admission::kAccepted;
  Nanoseconds arrival = {};
  Nanoseconds started = {};              ///< begin of its first step
  std::vector<Nanoseconds> tokens = {};  ///< when each was there: the end of its step
  std::size_t n_prompt = 0;

  bool operator==(const RequestTrace&) const = default;
};

struct StepTrace {
  Nanoseconds begin;
  Nanoseconds end;
  StepShape shape;

  bool operator==(const StepTrace&) const = default;
};

/// All that happened in a run.
struct LoadTrace {
  std::vector<RequestTrace> requests;
  std::vector<StepTrace> steps;
  std::vector<Nanoseconds> wakes;  ///< ends of the times with nothing to do
  std::uint64_t preemptions = 0;

  bool operator==(const LoadTrace&) const = default;
};

/// Who lets time pass: a model on this machine, or arithmetic.
class LoadBackend {
 public:
  virtual ~LoadBackend() = default;
  /// Nothing to do before `time`. @return the time now, `time` or later
  virtual Nanoseconds wait_until(Nanoseconds time) = 0;
  /// Evaluates a step that begins at `now`. @return its end
  virtual Result<Nanoseconds> run(const Step& step, const StepShape& shape, Nanoseconds now) = 0;
  /// A request is done.
  virtual void close(RequestId) {}
};

/// Sends a workload through a scheduler, and its steps to the backend: the one loop behind the real
/// run, the simulation and the replay. A request that arrives during a step is seen at its end.
/// Request i has id i.
Result<LoadTrace> run_load(std::span<const LoadRequest> workload, const SchedulerOptions& options,
                           LoadBackend& backend);

/// Virtual time: a step takes what the model predicts, times a residual drawn by `seed` and the
/// number of the step.
Result<LoadTrace> simulate_load(std::span<const LoadRequest> workload,
                                const SchedulerOptions& options, const CostModel& costs,
                                const Residuals& residuals = {}, std::uint64_t seed = 0);

/// Virtual time: step i and pause i take what they took in `measured`. The result equals `measured`
/// if, and only if, the same steps are decided on: what is left between a simulation and
/// a real run is the error of the costs.
Result<LoadTrace> replay_load(std::span<const LoadRequest> workload,
                              const SchedulerOptions& options, const LoadTrace& measured);

}  // namespace llm
