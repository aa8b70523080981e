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

Step Scheduler::next(const StoredPrefix& stored_prefix, const Proposed& proposed,
                     std::size_t most_long) {
  LLM_CHECK(under_way_.empty() && most_long > 0);
  Step step;
  grow_pages(step);
  // Fits: n_running_ <= parallel <= step_tokens.
  for (std::size_t i = 0; i < n_running_; ++i) {
    if (!requests_[i].is_prompt()) add_part(step, requests_[i], options_.step_tokens);
  }
  const bool decodes = step.n_tokens > 0;
  for (std::size_t i = 0; i < n_running_ && step.n_tokens < short_tokens(); ++i) {
    Request& request = requests_[i];
    if (!request.is_prompt() || request.is_long) continue;
    look_at(request, stored_prefix);
    add_part(step, request, short_tokens());
  }
  const std::size_t n_before = n_running_;
  while (step.n_tokens < short_tokens() && n_long() < 2 && admit_oldest()) {
    Request& request = requests_[n_running_ - 1];
    look_at(request, stored_prefix);
    if (!request.is_long) add_part(step, request, short_tokens());
  }
  add_long_parts(step, decodes ? most_long : options_.step_tokens, stored_prefix, n_before);
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
      youngest.is_long = false;
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

void Scheduler::look_at(Request& request, const StoredPrefix& stored_prefix) const {
  if (stored_prefix) request.stored = stored_prefix(request.id, request.stored);
  LLM_CHECK(request.stored < request.n_tokens);
  request.is_long = request.is_long || request.left() > options_.step_tokens;
}

std::size_t Scheduler::n_long() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      std::span(requests_).first(n_running_),
      [](const Request& request) { return request.is_prompt() && request.is_long; }));
}

std::size_t Scheduler::short_tokens() const {
  return options_.step_tokens - (n_long() > 0 ? options_.step_tokens / 4 : 0);
}

void Scheduler::add_part(Step& step, const Request& request, std::size_t step_tokens) {
  if (step.n_tokens >= step_tokens) return;
  const std::size_t n = std::min(request.left(), step_tokens - step.n_tokens);
  step.parts.push_back({request.id, request.stored, n, n == request.left()});
  step.n_tokens += n;
}

void Scheduler::add_long_parts(Step& step, std::size_t most, const StoredPrefix& stored_prefix,
                               std::size_t n_asked) {
  most = std::min(most, options_.step_tokens - step.n_tokens);
  const std::size_t end = step.n_tokens + most;
  for (std::size_t i = 0; i < n_running_ && step.n_tokens < end; ++i) {
    Request& request = requests_[i];
    if (!request.is_prompt() || !request.is_long) continue;
    if (i < n_asked) look_at(request, stored_prefix);
    add_part(step, request, end);
  }
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
