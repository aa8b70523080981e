#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/result.h"
#include "engine/batching/batch_runner.h"
#include "engine/batching/histogram.h"
#include "engine/batching/running_request.h"
#include "engine/batching/scheduler.h"
#include "engine/batching/step_pacer.h"

namespace llm {

/// A text to generate, and three functions that are told of it. The service's thread calls them:
/// they return soon, throw nothing and do not call the service.
struct GenerationJob {
  GenerationRequest request;
  RunningRequest::OnEvent on_event;  ///< as the text grows; may be empty
  /// When the prompt's evaluation begins and after each part of it, before the first token; may be
  /// empty.
  std::function<void(const PromptProgress&)> on_progress = {};
  std::function<void(const Result<GenerationOutput>&)> on_end =
      {};  ///< once, unless it is cancelled
};

/// Counts since a service was started, and its present state.
struct ServiceFigures {
  std::size_t running = 0;
  std::size_t waiting = 0;
  std::size_t kv_pages = 0;
  std::size_t kv_pages_in_use = 0;
  std::uint64_t kv_pages_shared = 0;  ///< times a page of equal tokens was taken over
  std::uint64_t steps = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t prompt_tokens = 0;     ///< of submitted texts
  std::uint64_t evaluated_tokens = 0;  ///< of steps
  std::uint64_t reused_tokens = 0;     ///< that were stored and needed no evaluation
  std::uint64_t loaded_tokens = 0;     ///< of those, the ones that came from disk
  /// That were stored once and are computed again, by SequenceState::Gone.
  std::array<std::uint64_t, 3> recomputed_tokens = {};
  std::uint64_t generated_tokens = 0;
  std::uint64_t proposed_tokens = 0;  ///< evaluated on trial
  std::uint64_t accepted_tokens = 0;  ///< of those, the ones that texts went on with
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  Histogram step_texts{{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}};
  Histogram first_token_seconds{
      {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100}};
  Histogram between_tokens_seconds{
      {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5}};
};

/// Generates texts for many at once: a thread that steps a Scheduler on an Executor. A text has the
/// bits that it has alone (docs/numerics.md), whoever else is served.
///
/// Usable from any thread. The number of texts that run or wait is bounded by the scheduler's
/// `parallel` + `queue`.
class GenerationService {
 public:
  /// Makes what proposes tokens of one text (docs/speculation.md).
  using Speculate = std::function<std::unique_ptr<Speculation>()>;

  /// Starts the service's thread and the threads that it computes on; ends those that the calling
  /// thread computed on. @param options  kv_pages and context as the executor's, whose kv_groups
  /// they get; step_tokens at most its batch. @param speculate  empty: nothing is proposed. Errors:
  /// those of Scheduler::create; kResource naming how many threads could be started.
  static Result<std::unique_ptr<GenerationService>> start(std::shared_ptr<Executor> executor,
                                                          SchedulerOptions options,
                                                          Speculate speculate = {});
  /// Drops what is not finished, calls none of its functions, and waits for the thread.
  ~GenerationService();
  GenerationService(const GenerationService&) = delete;
  GenerationService& operator=(const GenerationService&) = delete;

  struct Submission {
    Admission admission = Admission::kAccepted;
    RequestId first = 0;  ///< the jobs have ids from here on
  };
  /// All of the jobs, or none. kQueueFull where all of them find no place now; kTooLong where one
  /// exceeds the context or all pages.
  Submission submit(std::vector<GenerationJob> jobs);

  /// Forgets the texts [first, first + n) as soon as the step under way is done. Their functions
  /// are not called any more, but for a call that is under way. Those that have finished do not
  /// matter.
  void cancel(RequestId first, std::size_t n);

  const SchedulerOptions& options() const { return options_; }
  /// The most texts that are accepted at once.
  std::size_t capacity() const { return options_.parallel + options_.queue; }
  ServiceFigures figures() const;

 private:
  using OnEnd = decltype(GenerationJob::on_end);

  using Clock = std::chrono::steady_clock;

  struct Open {
    std::unique_ptr<RunningRequest> text;
    decltype(GenerationJob::on_progress) on_progress;
    OnEnd on_end;
    std::optional<Clock::time_point> prompt_began;

    void tell_progress();
  };
  struct Ended {
    OnEnd on_end;
    Result<GenerationOutput> text;
  };
  struct Submitted {
    RequestId id;
    std::size_t n_new;  ///< RunningRequest::most_new_tokens()
    GenerationJob job;
  };

  GenerationService(std::shared_ptr<Executor> executor, Scheduler scheduler);

  /// Of the thread. @param started  whether there are enough threads
  void work(std::promise<Status> started);
  /// Waits until there is something to do and takes what came. @return false: to be stopped
  bool take_inbox();
  void open(Submitted& submitted);
  void forget(RequestId id);
  void drop(RequestId id);
  /// @param ended  texts that end with the step, also where it throws
  void run_step(std::vector<Ended>& ended);
  /// Ends all texts with `refused_`: what failed has left the step half done.
  void give_up_all();
  /// Tells the pacer how long a step took.
  void note_step(const Step& step, double seconds);
  /// @param seconds  that the step took
  /// @param complete, failed  texts that end with the step
  void advance_texts(const Step& step, double seconds, std::vector<RequestId>& complete,
                     std::map<RequestId, Error>& failed);
  /// @param failed  errors of single texts, which end
  void end_step(const Step& step, const std::vector<RequestId>& complete,
                std::map<RequestId, Error> failed, std::vector<Ended>& ended);
  Ended end(RequestId id, Result<GenerationOutput> text);
  void note_tokens(const RunningRequest& text, std::size_t n_before);
  void publish_figures();

  SchedulerOptions options_;
  Speculate speculate_;
  const Result<GenerationOutput>
      refused_;  ///< what texts end with where memory is refused, made before

  // Of the thread alone.
  Scheduler scheduler_;
  StepPacer pacer_;
  BatchRunner runner_;
  std::map<RequestId, Open> texts_;
  ServiceFigures own_figures_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::vector<Submitted> submitted_;
  std::vector<RequestId> cancelled_;
  std::size_t n_open_ = 0;  ///< submitted, neither finished nor forgotten
  RequestId next_id_ = 0;
  bool stopped_ = false;
  ServiceFigures figures_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace llm
