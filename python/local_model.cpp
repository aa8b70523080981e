#include "python/local_model.h"

#include <utility>

#include "tools/llmserve/api/embeddings.h"
#include "tools/llmserve/model_loader.h"
#include "tools/llmserve/models/model_folder.h"

namespace llm {

Result<std::shared_ptr<LocalModel>> LocalModel::open(const ServeArguments& arguments,
                                                     Progress progress) {
  LLM_TRY(const LoadPlan plan, plan_model(arguments, one_model(arguments.model, {}), /*quiet=*/true,
                                          /*store=*/nullptr, std::move(progress)));
  LLM_TRY(Lease lease, plan.load());
  return std::shared_ptr<LocalModel>(new LocalModel(arguments.model, std::move(lease)));
}

Result<LocalModel::Logits> LocalModel::logits(std::span<const TokenId> tokens) const {
  if (tokens.empty()) return Error{ErrorCode::kUsage, "tokens", "found none, need 1 or more"};
  LLM_TRY(auto sequence,
          open_sequence(served().model, {.context = tokens.size(), .kv = served().kv}));
  LLM_TRY(const auto rows, sequence->evaluate(tokens, LogitRows::kAll));
  return Logits{std::move(sequence), rows};
}

/// What the service's thread and the caller's share.
struct LocalAnswer::State {
  State(std::shared_ptr<LocalModel> of, AnswerRequest asked)
      : request(std::move(asked)),
        writer(request.writer(of->served(), request)),
        texts(request.n_choices()),
        n_left(texts.size()) {}

  bool is_complete() const { return n_left == 0 || error; }

  /// Calls `change` as one step, unless the answer has ended by an error; what it throws ends it.
  template <typename Change>
  void update(const Change& change) {
    {
      const std::lock_guard lock(mutex);
      if (error) return;
      try {
        change();
      } catch (const std::exception& problem) {
        error = Error{ErrorCode::kResource, "memory", problem.what()};
      }
    }
    changed.notify_all();
  }

  const AnswerRequest request;
  const std::unique_ptr<AnswerWriter> writer;

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<std::string> parts;
  std::vector<GenerationOutput> texts;
  std::size_t n_left;
  std::optional<Error> error;
};

LocalAnswer::LocalAnswer(std::shared_ptr<LocalModel> model, AnswerRequest request)
    : model_(std::move(model)), state_(std::make_shared<State>(model_, std::move(request))) {}

std::vector<GenerationJob> LocalAnswer::jobs() {
  std::vector<GenerationJob> jobs;
  for (std::size_t i = 0; i < state_->request.n_choices(); ++i) {
    const auto add = [](State& state, std::string part) {
      if (!part.empty()) state.parts.push_back(std::move(part));
    };
    GenerationJob job{.request = state_->request.choice(i, model_->served()), .on_event = {}};
    job.on_event = [state = state_, i, add](const GenerateEvent& event) {
      state->update([&] {
        const TextEvent kept(event);
        add(*state, state->request.stream ? state->writer->growth(i, kept) : kept.text);
      });
    };
    job.on_end = [state = state_, i, add](const Result<GenerationOutput>& text) {
      state->update([&] {
        if (!text.ok()) {
          state->error = text.error();
          return;
        }
        state->texts[i] = *text;
        if (state->request.stream) add(*state, state->writer->closing(i, *text));
        if (--state->n_left == 0 && state->request.stream) add(*state, state->writer->ending());
      });
    };
    jobs.push_back(std::move(job));
  }
  return jobs;
}

Result<std::unique_ptr<LocalAnswer>> LocalModel::start(const std::string& body, Endpoint endpoint) {
  const auto parse = endpoint == Endpoint::kChat          ? parse_chat
                     : endpoint == Endpoint::kCompletions ? parse_completion
                                                          : parse_embeddings;
  LLM_TRY(AnswerRequest request, parse(parse_ordered_json(body), served()));
  auto answer = std::make_unique<LocalAnswer>(shared_from_this(), std::move(request));
  if (answer->state_->request.stream)
    answer->state_->parts.push_back(answer->state_->writer->opening());
  const auto submission = service().submit(answer->jobs());
  if (submission.admission == Admission::kTooLong)
    return Error{ErrorCode::kResource, "prompt",
                 "found more tokens, with the generated ones, than fit into all KV cache pages"};
  if (submission.admission == Admission::kQueueFull)
    return Error{ErrorCode::kResource, "queue", "found it full, need a place; try again later"};
  answer->first_ = submission.first;
  answer->is_submitted_ = true;
  return answer;
}

bool LocalAnswer::wait_for(std::chrono::milliseconds time) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, time,
                                  [&] { return !state_->parts.empty() || state_->is_complete(); });
}

Result<std::optional<std::string>> LocalAnswer::next() {
  const std::lock_guard lock(state_->mutex);
  if (state_->parts.empty() && state_->error) return *state_->error;
  if (state_->parts.empty()) return std::optional<std::string>();
  std::optional<std::string> part = std::move(state_->parts.front());
  state_->parts.pop_front();
  return part;
}

bool LocalAnswer::is_complete() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_complete();
}

std::string LocalAnswer::whole() const { return state_->writer->whole(state_->texts); }

std::vector<std::string> LocalAnswer::logits_sha256() const {
  std::vector<std::string> hashes;
  for (const GenerationOutput& text : state_->texts) hashes.push_back(text.logits_sha256);
  return hashes;
}

void LocalAnswer::cancel() {
  if (std::exchange(is_submitted_, false))
    model_->service().cancel(first_, state_->request.n_choices());
  state_->update([&] {
    if (state_->is_complete() && state_->parts.empty()) return;
    state_->parts.clear();
    state_->error = Error{ErrorCode::kUsage, "text", "found it closed, need one that goes on"};
  });
}

}  // namespace llm
