#include "engine/batching/generation_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/start_thread.h"
#include "base/thread_team.h"

namespace llm {
namespace {

/// The service bounds what waits; the scheduler never has to refuse.
SchedulerOptions with_room(SchedulerOptions options) {
  options.queue += options.parallel;
  return options;
}

Error no_memory() {
  return {ErrorCode::kResource, "memory", "found too little memory or too few threads, need more"};
}

/// @param on_end  of a GenerationJob; may be empty
void tell(const std::function<void(const Result<GenerationOutput>&)>& on_end,
          const Result<GenerationOutput>& text) {
  if (on_end) on_end(text);
}

}  // namespace

Result<std::unique_ptr<GenerationService>> GenerationService::start(
    std::shared_ptr<Executor> executor, SchedulerOptions options, Speculate speculate) {
  options.kv_groups = executor->pool().groups();
  LLM_TRY(Scheduler scheduler, Scheduler::create(with_room(options)));
  std::unique_ptr<GenerationService> service(
      new GenerationService(std::move(executor), std::move(scheduler)));
  service->options_ = std::move(options);
  service->speculate_ = std::move(speculate);
  service->publish_figures();
  end_team();  // the model was loaded on it; the service's thread has its own
  std::promise<Status> promise;
  std::future<Status> started = promise.get_future();
  LLM_TRY(service->thread_,
          start_thread("texts", [self = service.get(), kept = std::move(promise)]() mutable {
            self->work(std::move(kept));
          }));
  LLM_RETURN_IF_ERROR(started.get());
  return service;
}

GenerationService::GenerationService(std::shared_ptr<Executor> executor, Scheduler scheduler)
    : refused_(no_memory()),
      scheduler_(std::move(scheduler)),
      runner_(std::move(executor),
              {.context = scheduler_.options().context, .share_prefix = true, .nonfinite = true}) {}

GenerationService::~GenerationService() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

GenerationService::Submission GenerationService::submit(std::vector<GenerationJob> jobs) {
  std::vector<Submitted> submitted;
  for (GenerationJob& job : jobs) {
    const std::size_t n_prompt = job.request.prompt.size();
    const std::size_t n_new = RunningRequest::most_new_tokens(job.request, options_.context);
    if (!Scheduler::fits(options_, n_prompt, n_new)) return {.admission = Admission::kTooLong};
    submitted.push_back({0, n_new, std::move(job)});
  }
  Submission submission;
  {
    const std::lock_guard lock(mutex_);
    if (submitted.size() > capacity() - n_open_) return {.admission = Admission::kQueueFull};
    submitted_.reserve(submitted_.size() + submitted.size());
    n_open_ += submitted.size();
    submission.first = next_id_;
    for (Submitted& one : submitted) {
      one.id = next_id_++;
      submitted_.push_back(std::move(one));
    }
  }
  wake_.notify_one();
  return submission;
}

void GenerationService::cancel(RequestId first, std::size_t n) {
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < n; ++i) cancelled_.push_back(first + i);
  }
  wake_.notify_one();
}

ServiceFigures GenerationService::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

void GenerationService::work(std::promise<Status> started) {
  const Status enough = start_team(runner_.executor().model().threads());
  const bool goes_on = enough.ok();
  started.set_value(enough);
  while (goes_on && take_inbox()) {
    std::vector<Ended> ended;
    bool is_whole = false;
    try {
      run_step(ended);
      is_whole = true;
    } catch (const std::exception&) {  // std::bad_alloc, or a thread that cannot be started
    }
    for (const Ended& one : ended) tell(one.on_end, one.text);
    if (!is_whole) give_up_all();
  }
}

bool GenerationService::take_inbox() {
  std::vector<Submitted> submitted;
  std::vector<RequestId> cancelled;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] {
      return stopped_ || !submitted_.empty() || !cancelled_.empty() || !texts_.empty();
    });
    if (stopped_) return false;
    submitted.swap(submitted_);
    cancelled.swap(cancelled_);
  }
  for (Submitted& one : submitted) {
    try {
      open(one);
    } catch (const std::exception&) {
      ++own_figures_.failed;
      drop(one.id);
      tell(one.job.on_end, refused_);
    }
  }
  for (const RequestId id : cancelled) forget(id);
  if (!submitted.empty() || !cancelled.empty()) publish_figures();
  return true;
}

void GenerationService::open(Submitted& submitted) {
  GenerationRequest& request = submitted.job.request;
  const std::size_t n_prompt = request.prompt.size();
  const std::size_t n_new = submitted.n_new;
  own_figures_.prompt_tokens += n_prompt;
  Open& opened = texts_[submitted.id];
  opened.text = std::make_unique<RunningRequest>(runner_.executor().model(), std::move(request),
                                                 n_new, std::move(submitted.job.on_event),
                                                 speculate_ ? speculate_() : nullptr);
  LLM_CHECK(scheduler_.submit(submitted.id, n_prompt, n_new) == Admission::kAccepted);
  opened.on_progress = std::move(submitted.job.on_progress);
  opened.on_end = std::move(submitted.job.on_end);  // which is told of all that fails before
}

void GenerationService::Open::tell_progress() {
  if (!on_progress) return;
  const Clock::time_point now = Clock::now();
  if (!prompt_began) prompt_began = now;
  PromptProgress progress = text->prompt_progress();
  progress.seconds = std::chrono::duration<double>(now - *prompt_began).count();
  on_progress(progress);
}

void GenerationService::give_up_all() {
  scheduler_.reset();
  own_figures_.failed += texts_.size();
  while (!texts_.empty()) {
    const auto first = texts_.begin();
    const OnEnd on_end = std::move(first->second.on_end);
    drop(first->first);
    tell(on_end, refused_);
  }
  publish_figures();
}

void GenerationService::drop(RequestId id) {
  texts_.erase(id);
  scheduler_.cancel(id);
  runner_.close(id);
  const std::lock_guard lock(mutex_);
  --n_open_;
}

void GenerationService::forget(RequestId id) {
  if (!texts_.contains(id)) return;  // it has finished
  ++own_figures_.cancelled;
  drop(id);
}

void GenerationService::note_tokens(const RunningRequest& text, std::size_t n_before) {
  const GenerateResult& result = text.so_far();
  own_figures_.generated_tokens += result.ids.size() - n_before;
  for (std::size_t i = n_before; i < result.ids.size(); ++i) {
    if (i == 0) {
      own_figures_.first_token_seconds.add(result.first_token_seconds);
    } else {
      own_figures_.between_tokens_seconds.add(result.token_seconds[i - 1]);
    }
  }
}

void GenerationService::run_step(std::vector<Ended>& ended) {
  const auto stored_prefix = [this](RequestId id, std::size_t n_stored) {
    RunningRequest& text = *texts_.at(id).text;
    const auto [n, n_loaded, lost] = runner_.adopt(
        id, n_stored, text.tokens().first(text.n_skippable()), text.scope(), text.adapters());
    if (n_stored == 0) {
      runner_.set_checkpoints(id, text.checkpoints());
      if (Proposer* const reader = text.reader_of_rows())
        runner_.set_on_normed(id, [reader](std::size_t first, std::span<const float> rows) {
          reader->take_rows(first, rows);
        });
    }
    text.note_lost(lost);
    own_figures_.recomputed_tokens[static_cast<std::size_t>(lost.why)] += lost.n_tokens;
    text.note_adopted(n_stored, n);
    if (n_stored == 0 && text.so_far().ids.empty()) texts_.at(id).tell_progress();
    own_figures_.reused_tokens += n - n_stored;
    own_figures_.loaded_tokens += n_loaded;
    return n;
  };
  const auto proposed = [this](RequestId id, std::size_t most) {
    return texts_.at(id).text->propose(runner_.state(id), most);
  };
  const Step step = scheduler_.next(
      stored_prefix, speculate_ ? Scheduler::Proposed(proposed) : nullptr, pacer_.most_long());
  if (step.parts.empty()) return;
  ended.reserve(step.parts.size());
  const auto started = std::chrono::steady_clock::now();
  std::vector<RequestId> complete;
  std::map<RequestId, Error> failed;
  Status status = Ok{};
  try {
    status = runner_.run(
        step, [this](RequestId id) { return texts_.at(id).text->tokens(); },
        [this](const StepPart& part, std::span<const float> rows) -> Status {
          texts_.at(part.id).text->take(part, rows);
          return Ok{};
        },
        [this](const StepPart& part) { return texts_.at(part.id).text->rows_of(part); });
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - started;
    if (status.ok()) {
      note_step(step, time.count());
      advance_texts(step, time.count(), complete, failed);
    }
  } catch (const std::bad_alloc&) {
    status = no_memory();
  }
  if (!status.ok()) {
    for (const StepPart& part : step.parts) failed.emplace(part.id, status.error());
  }
  ++own_figures_.steps;
  own_figures_.evaluated_tokens += step.n_tokens;
  own_figures_.step_texts.add(static_cast<double>(step.parts.size()));
  end_step(step, complete, std::move(failed), ended);
  publish_figures();  // first, so that an end is counted before anyone hears of it
}

void GenerationService::note_step(const Step& step, double seconds) {
  std::size_t n_prompt = 0;
  for (const StepPart& part : step.parts)
    if (part.n_tokens > 1) n_prompt += part.n_tokens;
  pacer_.note(n_prompt, step.n_tokens - n_prompt, seconds);
}

void GenerationService::advance_texts(const Step& step, double seconds,
                                      std::vector<RequestId>& complete,
                                      std::map<RequestId, Error>& failed) {
  const bool all_decode =
      std::ranges::all_of(step.parts, [](const StepPart& part) { return part.n_tokens == 1; });
  for (const StepPart& part : step.parts) {
    RunningRequest& text = *texts_.at(part.id).text;
    const std::size_t n_before = text.so_far().ids.size();
    text.note_evaluated(part.first + part.n_tokens);
    if (n_before == 0) texts_.at(part.id).tell_progress();
    const auto is_complete = text.advance(part, runner_.executor().passes());
    if (!is_complete.ok()) {
      failed.emplace(part.id, is_complete.error());  // the other texts go on
    } else if (*is_complete) {
      complete.push_back(part.id);
    }
    note_tokens(text, n_before);
    if (part.n_proposed > 0) {
      runner_.keep(part.id, part.first + part.n_tokens + text.n_accepted());
      own_figures_.proposed_tokens += part.n_proposed;
      own_figures_.accepted_tokens += text.n_accepted();
    }
    if (all_decode && part.wants_logits) text.note_step(seconds);
  }
}

void GenerationService::end_step(const Step& step, const std::vector<RequestId>& complete,
                                 std::map<RequestId, Error> failed, std::vector<Ended>& ended) {
  std::vector<RequestId> stopped = complete;
  for (const auto& [id, error] : failed) stopped.push_back(id);
  const auto accepted = [this](const StepPart& part) {
    return texts_.at(part.id).text->n_accepted();
  };
  for (const RequestId id : scheduler_.complete(stopped, accepted)) {
    LLM_CHECK(std::ranges::find(stopped, id) != stopped.end());
  }
  for (const StepPart& part : step.parts) {
    if (const auto error = failed.find(part.id); error != failed.end()) {
      scheduler_.cancel(part.id);  // where it failed before it wanted logits
      ++own_figures_.failed;
      ended.push_back(end(part.id, std::move(error->second)));
    } else if (std::ranges::find(complete, part.id) != complete.end()) {
      ++own_figures_.finished;
      ended.push_back(end(part.id, std::move(*texts_.at(part.id).text).finish()));
    }
  }
}

GenerationService::Ended GenerationService::end(RequestId id, Result<GenerationOutput> text) {
  Ended ended{std::move(texts_.at(id).on_end), std::move(text)};
  texts_.erase(id);
  runner_.close(id);
  const std::lock_guard lock(mutex_);
  --n_open_;
  return ended;
}

void GenerationService::publish_figures() {
  own_figures_.running = scheduler_.n_running();
  own_figures_.waiting = scheduler_.n_waiting();
  own_figures_.preemptions = scheduler_.preemptions();
  const KvPool& pool = runner_.executor().pool();
  own_figures_.kv_pages = pool.n_pages();
  own_figures_.kv_pages_in_use = pool.pages_in_use();
  own_figures_.kv_pages_shared = pool.pages_shared();
  const std::lock_guard lock(mutex_);
  figures_ = own_figures_;
}

}  // namespace llm
