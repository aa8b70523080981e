#include "engine/batching/scheduler.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace llm {

Result<Scheduler> Scheduler::create(const SchedulerOptions& options) {
  for (const auto& [name, value] :
       {std::pair{"step tokens", options.step_tokens}, std::pair{"parallel", options.parallel},
        std::pair{"queue", options.queue}, std::pair{"context", options.context},
        std::pair{"KV pages", options.kv_pages}}) {
    if (value > 0) continue;
    return Error{ErrorCode::kUsage, name, "found 0, need 1 or more"};
  }
  if (options.step_tokens < options.parallel) {
    return Error{ErrorCode::kUsage, "step tokens",
                 fmt::format("found {}, need one for each of {} parallel requests",
                             options.step_tokens, options.parallel)};
  }
  return Scheduler(options);
}

bool Scheduler::fits(const SchedulerOptions& options, std::size_t n_prompt, std::size_t n_new) {
  return n_new <= most_new(options.context, n_prompt) &&
         pages_for(options, n_prompt + n_new - 1) <= options.kv_pages;
}

Admission Scheduler::submit(RequestId id, std::size_t n_prompt, std::size_t n_new) {
  LLM_CHECK(n_prompt > 0 && n_new > 0);
  LLM_CHECK(requests_.empty() || requests_.back().id < id);
  if (!fits(options_, n_prompt, n_new)) return Admission::kTooLong;
  if (n_waiting() >= options_.queue) return Admission::kQueueFull;
  requests_.push_back({.id = id, .n_tokens = n_prompt, .most_tokens = n_prompt + n_new});
  return Admission::kAccepted;
}

bool Scheduler::cancel(RequestId id) {
  const auto request = find(id);
  if (request == requests_.end()) return false;
  erase(request);
  return true;
}

void Scheduler::reset() {
  requests_.clear();
  under_way_.clear();
  n_running_ = 0;
  pages_in_use_ = 0;
}

Step Scheduler::next(const StoredPrefix& stored_prefix, const Proposed& proposed) {
  LLM_CHECK(under_way_.empty());
  Step step;
  grow_pages(step);
  // Fits: n_running_ <= parallel <= step_tokens.
  for (std::size_t i = 0; i < n_running_; ++i) {
    if (requests_[i].left() == 1) add_part(step, requests_[i], {});
  }
  for (std::size_t i = 0; i < n_running_; ++i) {
    if (requests_[i].left() > 1) add_part(step, requests_[i], stored_prefix);
  }
  while (step.n_tokens < options_.step_tokens && admit_oldest()) {
    add_part(step, requests_[n_running_ - 1], stored_prefix);
  }
  if (proposed && step.n_tokens == step.parts.size()) add_proposals(step, proposed);
  under_way_ = step.parts;
  return step;
}

void Scheduler::grow_pages(Step& step) {
  for (std::size_t i = 0; i < n_running_; ++i) {
    const std::size_t needed = pages_for(options_, requests_[i].n_tokens);
    // The youngest gives way, at last this one itself.
    while (i < n_running_ && needed - requests_[i].pages > free_pages()) {
      Request& youngest = requests_[--n_running_];
      set_pages(youngest, 0);
      youngest.stored = 0;
      step.preempted.push_back(youngest.id);
      ++preemptions_;
    }
    if (i < n_running_) set_pages(requests_[i], needed);
  }
}

bool Scheduler::admit_oldest() {
  if (n_waiting() == 0 || n_running_ == options_.parallel) return false;
  Request& oldest = requests_[n_running_];
  const std::size_t needed = pages_for(options_, oldest.n_tokens);
  if (needed > free_pages()) return false;
  set_pages(oldest, needed);
  ++n_running_;
  return true;
}

void Scheduler::add_part(Step& step, Request& request, const StoredPrefix& stored_prefix) const {
  if (step.n_tokens == options_.step_tokens) return;
  if (stored_prefix) request.stored = stored_prefix(request.id, request.stored);
  LLM_CHECK(request.stored < request.n_tokens);
  const std::size_t n = std::min(request.left(), options_.step_tokens - step.n_tokens);
  step.parts.push_back({request.id, request.stored, n, n == request.left()});
  step.n_tokens += n;
}

void Scheduler::add_proposals(Step& step, const Proposed& proposed) {
  for (StepPart& part : step.parts) {
    const Request& request = *find(part.id);
    const std::size_t end = KvGroups::pages_for(request.n_tokens) * KvGroups::kPagePositions;
    // The last token that a request may have is never evaluated.
    const std::size_t most = std::min({options_.step_tokens - step.n_tokens, end - request.n_tokens,
                                       request.most_tokens - request.n_tokens - 1});
    if (most > 0) part.n_proposed = proposed(part.id, most);
    LLM_CHECK(part.n_proposed <= most);
    step.n_tokens += part.n_proposed;
  }
}

std::vector<RequestId> Scheduler::complete(std::span<const RequestId> stopped,
                                           const Accepted& accepted) {
  std::vector<RequestId> done;
  for (const StepPart& part : std::exchange(under_way_, {})) {
    const auto request = find(part.id);
    if (request == requests_.end()) continue;  // cancelled meanwhile
    const std::size_t n_accepted = part.n_proposed > 0 ? accepted(part) : 0;
    request->stored += part.n_tokens + n_accepted;
    if (!part.wants_logits) continue;
    request->n_tokens += n_accepted + 1;
    if (request->n_tokens < request->most_tokens &&
        std::ranges::find(stopped, part.id) == stopped.end()) {
      continue;
    }
    done.push_back(part.id);
    erase(request);
  }
  return done;
}

void Scheduler::set_pages(Request& request, std::size_t pages) {
  pages_in_use_ = pages_in_use_ - request.pages + pages;
  request.pages = pages;
}

std::vector<Scheduler::Request>::iterator Scheduler::find(RequestId id) {
  const auto at = std::ranges::lower_bound(requests_, id, {}, &Request::id);
  return at != requests_.end() && at->id == id ? at : requests_.end();
}

void Scheduler::erase(std::vector<Request>::iterator request) {
  set_pages(*request, 0);
  if (request - requests_.begin() < static_cast<std::ptrdiff_t>(n_running_)) --n_running_;
  requests_.erase(request);
}

}  // namespace llm
