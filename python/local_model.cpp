#include "python/local_model.h"

#include <ctime>
#include <filesystem>
#include <utility>

#include "tools/common/chat_date.h"
#include "tools/llmserve/prompts.h"

namespace llm {
namespace {

constexpr std::size_t kKvBytes = std::size_t{1} << 30;  // for texts beside the first

/// The template of conversations; null where the file has none that is understood.
Result<std::shared_ptr<const ChatStyle>> style_of(const LocalOptions& options, const Model& model) {
  const bool is_auto = options.chat_template == "auto";
  if (is_auto && model.chat_template().empty()) return std::shared_ptr<const ChatStyle>();
  auto style = ChatStyle::choose(options.chat_template, model.chat_template(), model.tokenizer());
  if (!style.ok() && is_auto) return std::shared_ptr<const ChatStyle>();
  if (!style.ok()) return style.error();
  const ChatOptions date{.chat_template = options.chat_template, .date = options.chat_date};
  LLM_TRY(const auto day, chat_date(date, (*style)->needs_date(), "llmrun", /*quiet=*/true));
  if (day) (*style)->set_date(*day);
  return std::shared_ptr<const ChatStyle>(*style);
}

/// As many pages as all texts need, but of kKvBytes only those of one.
Result<SchedulerOptions> scheduler_of(const LocalOptions& options, const Model& model) {
  SchedulerOptions scheduler;
  scheduler.parallel = options.parallel;
  scheduler.step_tokens = std::max(scheduler.step_tokens, options.parallel);
  scheduler.context = options.context > 0 ? options.context : model.config().context;
  LLM_TRY(const auto page, KvPool::create(model.config(), 1, options.kv));
  scheduler.kv_groups = page->groups();
  const std::size_t one = Scheduler::pages_for(scheduler, scheduler.context);
  scheduler.kv_pages =
      std::max(one, std::min(kKvBytes / page->page_bytes(), one * options.parallel));
  return scheduler;
}

}  // namespace

Result<std::shared_ptr<LocalModel>> LocalModel::open(const std::string& path,
                                                     const LocalOptions& options) {
  std::shared_ptr<LocalModel> local(new LocalModel());
  local->path_ = path;
  ServedModel& served = local->served_;
  LLM_TRY(served.model, Model::load(path, options.load));
  LLM_TRY(served.style, style_of(options, *served.model));
  LLM_TRY(const SchedulerOptions scheduler, scheduler_of(options, *served.model));
  served.ids = {std::filesystem::path(path).stem().string()};
  if (served.style) {
    served.reply_format = reply_format_of(*served.style, served.tokenizer());
    served.reply_shows_special = has_control_tokens(served.reply_format, served.tokenizer());
  }
  served.kv = options.kv;
  served.context = served.most_new_tokens = scheduler.context;
  served.most_texts = scheduler.parallel + scheduler.queue;
  served.loaded_at = std::time(nullptr);
  served.grammars = std::make_shared<GrammarCompiler>(served.tokenizer());
  LLM_TRY(
      auto executor,
      Executor::create(served.model, {.context = std::max(scheduler.context, scheduler.step_tokens),
                                      .kv = options.kv,
                                      .batch = scheduler.step_tokens,
                                      .kv_pages = scheduler.kv_pages}));
  LLM_TRY(local->service_, TextService::start(std::move(executor), scheduler));
  return local;
}

Result<LocalModel::Logits> LocalModel::logits(std::span<const TokenId> tokens) const {
  if (tokens.empty()) return Error{ErrorCode::kUsage, "tokens", "found none, need 1 or more"};
  LLM_TRY(auto sequence,
          open_sequence(served_.model, {.context = tokens.size(), .kv = served_.kv}));
  LLM_TRY(const auto rows, sequence->evaluate(tokens, LogitRows::kAll));
  return Logits{std::move(sequence), rows};
}

/// What the service's thread and the caller's share.
struct LocalAnswer::State {
  State(std::shared_ptr<LocalModel> of, AnswerRequest asked)
      : request(std::move(asked)),
        writer(AnswerWriter::create(of->served(), request)),
        texts(request.n_choices()),
        n_left(texts.size()) {}

  bool is_complete() const { return n_left == 0 || error; }

  /// Calls `change` as one step; what it throws ends the answer.
  template <typename Change>
  void update(const Change& change) {
    {
      const std::lock_guard lock(mutex);
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
  std::vector<ServedText> texts;
  std::size_t n_left;
  std::optional<Error> error;
};

LocalAnswer::LocalAnswer(std::shared_ptr<LocalModel> model, AnswerRequest request)
    : model_(std::move(model)), state_(std::make_shared<State>(model_, std::move(request))) {}

std::vector<TextJob> LocalAnswer::jobs() {
  std::vector<TextJob> jobs;
  for (std::size_t i = 0; i < state_->request.n_choices(); ++i) {
    const auto add = [](State& state, std::string part) {
      if (!part.empty()) state.parts.push_back(std::move(part));
    };
    TextJob job{.request = state_->request.choice(i, model_->served()), .on_event = {}};
    job.on_event = [state = state_, i, add](const GenerateEvent& event) {
      state->update([&] {
        TextEvent kept{event.id, std::string(event.text), std::nullopt};
        if (event.logprobs != nullptr) kept.logprobs = *event.logprobs;
        add(*state, state->request.stream ? state->writer->growth(i, kept) : kept.text);
      });
    };
    job.on_end = [state = state_, i, add](const Result<ServedText>& text) {
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

Result<std::unique_ptr<LocalAnswer>> LocalModel::start(const std::string& body, bool is_chat) {
  const OrderedJson json = parse_ordered_json(body);
  LLM_TRY(AnswerRequest request,
          is_chat ? parse_chat(json, served_) : parse_completion(json, served_));
  auto answer = std::make_unique<LocalAnswer>(shared_from_this(), std::move(request));
  if (answer->state_->request.stream)
    answer->state_->parts.push_back(answer->state_->writer->opening());
  const auto submission = service_->submit(answer->jobs());
  if (submission.admission == Admission::kTooLong)
    return Error{ErrorCode::kResource, "prompt",
                 "found more tokens, with the new ones, than all KV pages hold"};
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
  for (const ServedText& text : state_->texts) hashes.push_back(text.logits_sha256);
  return hashes;
}

void LocalAnswer::cancel() {
  if (std::exchange(is_submitted_, false))
    model_->service_->cancel(first_, state_->request.n_choices());
  state_->update([&] {
    if (state_->is_complete()) return;
    state_->parts.clear();
    state_->error = Error{ErrorCode::kUsage, "text", "found it closed, need one that goes on"};
  });
}

}  // namespace llm
