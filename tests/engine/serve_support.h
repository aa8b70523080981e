#pragma once

#include <future>

#include "engine/batching/generation_service.h"
#include "tests/support/embedded_model.h"
#include "tests/support/test.h"

namespace llm::test {

using Ids = std::vector<TokenId>;

/// A service on an executor of its own, for texts of options.context tokens.
inline std::unique_ptr<GenerationService> start(
    const std::shared_ptr<const Model>& model, const SchedulerOptions& options,
    const GenerationService::Speculate& speculate = {}) {
  auto executor = require_ok(Executor::create(
      model,
      {.context = options.context, .batch = options.step_tokens, .kv_pages = options.kv_pages}));
  return require_ok(GenerationService::start(executor, options, speculate));
}

/// For a few short steps.
inline SchedulerOptions few_steps(std::size_t context, std::size_t kv_pages = 8) {
  return {.step_tokens = 64, .parallel = 4, .queue = 4, .context = context, .kv_pages = kv_pages};
}

/// A text of n_new tokens, whatever they are.
inline GenerationRequest text_request(Ids prompt, std::size_t n_new, std::uint64_t seed = 0) {
  GenerationRequest request{.prompt = std::move(prompt), .options = {}};
  request.options.max_tokens = n_new;
  request.options.ignore_eos = true;
  request.options.sampler.seed = seed;
  return request;
}

/// A text under way.
struct Listener {
  std::string events;  ///< joined
  std::promise<Result<GenerationOutput>> end;

  GenerationJob job(GenerationRequest request) {
    return {.request = std::move(request),
            .on_event = [this](const GenerateEvent& event) { events += event.text; },
            .on_end = [this](const Result<GenerationOutput>& text) { end.set_value(text); }};
  }
  Result<GenerationOutput> wait() { return end.get_future().get(); }
};

/// Submits texts at once, which must be accepted. @return the number of the first
inline RequestId submit(GenerationService& service, std::vector<GenerationJob> jobs) {
  const auto submission = service.submit(std::move(jobs));
  REQUIRE(submission.admission == Admission::kAccepted);
  return submission.first;
}

/// The same with a listener for each.
inline std::vector<Listener> submit(GenerationService& service,
                                    const std::vector<GenerationRequest>& requests) {
  std::vector<Listener> listeners(requests.size());
  std::vector<GenerationJob> jobs;
  for (std::size_t i = 0; i < requests.size(); ++i) jobs.push_back(listeners[i].job(requests[i]));
  submit(service, std::move(jobs));
  return listeners;
}

}  // namespace llm::test
