#include "tools/llmload/real_run.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <string_view>
#include <thread>

#include "base/seeded_hash.h"
#include "base/sha256.h"
#include "engine/batching/batch_runner.h"

namespace llm {
namespace {

using Clock = std::chrono::steady_clock;

class Machine final : public LoadBackend {
 public:
  Machine(std::shared_ptr<Executor> executor, std::span<const LoadRequest> workload,
          const TextOptions& options)
      : runner_(std::move(executor)) {
    const std::size_t n_vocab = runner_.executor().model().config().n_vocab;
    for (std::size_t i = 0; i < workload.size(); ++i) {
      texts_.push_back({prompt_of(options.prompt_seed, i, workload[i].n_prompt, n_vocab)});
      texts_.back().tokens.reserve(workload[i].n_prompt + workload[i].n_output);
      samplers_.emplace_back(options.sampling, i);
    }
  }

  /// Begins time.
  void start() { start_ = Clock::now(); }

  Nanoseconds wait_until(Nanoseconds time) override {
    // A sleep ends late; the rest is waited for awake.
    constexpr std::chrono::microseconds kAwake(200);
    std::this_thread::sleep_until(start_ + time - kAwake);
    while (now() < time) std::this_thread::yield();
    return now();
  }

  Result<Nanoseconds> run(const Step& step, const StepShape&, Nanoseconds) override {
    LLM_RETURN_IF_ERROR(runner_.run(
        step, [this](RequestId id) { return std::span<const TokenId>(texts_[id].tokens); },
        [this](const StepPart& part, std::span<const float> logits) {
          return texts_[part.id].take(logits, samplers_[part.id]);
        }));
    return now();
  }

  void close(RequestId id) override { runner_.close(id); }

  std::vector<Text>&& texts() && { return std::move(texts_); }
  const Executor& executor() const { return runner_.executor(); }

 private:
  Nanoseconds now() const { return Clock::now() - start_; }

  BatchRunner runner_;
  std::vector<Text> texts_;
  std::vector<Sampler> samplers_;
  Clock::time_point start_;
};

/// An executor for which every step is one pass.
ExecutorOptions executor_options(KvType kv, const SchedulerOptions& options) {
  return {.context = std::max(options.context, options.step_tokens),
          .kv = kv,
          .batch = options.step_tokens,
          .kv_pages = options.kv_pages};
}

}  // namespace

Status Text::take(std::span<const float> logits, const Sampler& sampler) {
  const auto bytes = std::as_bytes(logits);
  logits_hash =
      sip_hash<1, 3>({logits_hash, 0}, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  LLM_TRY(const TokenId id, sampler.sample(logits, tokens, tokens.size()));
  tokens.push_back(id);
  return Ok{};
}

std::string hash_of(std::span<const Text> texts) {
  static_assert(std::endian::native == std::endian::little);
  Sha256 hash;
  for (const Text& text : texts) {
    const std::uint64_t head[] = {text.tokens.size(), text.logits_hash};
    hash.update(std::as_bytes(std::span(head).first(1)));
    hash.update(std::as_bytes(std::span(text.tokens)));
    hash.update(std::as_bytes(std::span(head).last(1)));
  }
  return hash.hex();
}

Result<RealRun> run_really(const std::shared_ptr<const Model>& model, KvType kv,
                           std::span<const LoadRequest> workload, const SchedulerOptions& options,
                           const TextOptions& text) {
  LLM_TRY(auto executor, Executor::create(model, executor_options(kv, options)));
  {
    // Touches every activation and starts the threads.
    LLM_TRY(const auto sequence, Executor::open(executor));
    const std::vector<TokenId> ids(std::min(options.step_tokens, options.context));
    LLM_RETURN_IF_ERROR(sequence->evaluate(ids, LogitRows::kLast));
  }
  Machine machine(std::move(executor), workload, text);
  machine.start();
  RealRun run;
  LLM_TRY(run.trace, run_load(workload, options, machine));
  run.texts = std::move(machine).texts();
  return run;
}

Result<std::vector<std::size_t>> differing_alone(
    const std::shared_ptr<const Model>& model, KvType kv, std::span<const LoadRequest> workload,
    const SchedulerOptions& options, const TextOptions& text, std::span<const RealRun> runs,
    const std::function<void(std::size_t done, std::size_t total)>& progress) {
  LLM_TRY(const auto executor, Executor::create(model, {.context = options.context, .kv = kv}));
  const std::size_t n_vocab = model->config().n_vocab;
  std::vector<std::size_t> differing;
  for (std::size_t i = 0; i < workload.size(); ++i) {
    if (progress) progress(i, workload.size());
    const auto has_text = [&](const RealRun& run) {
      return run.trace.requests[i].admission == Admission::kAccepted;
    };
    if (std::ranges::none_of(runs, has_text)) continue;
    LLM_TRY(const auto sequence, Executor::open(executor));
    const Sampler sampler(text.sampling, i);
    Text alone{prompt_of(text.prompt_seed, i, workload[i].n_prompt, n_vocab)};
    while (alone.tokens.size() < workload[i].n_prompt + workload[i].n_output) {
      const auto next = std::span(alone.tokens).subspan(sequence->position());
      LLM_TRY(const auto logits, sequence->evaluate(next, LogitRows::kLast));
      LLM_RETURN_IF_ERROR(alone.take(logits, sampler));
    }
    const auto differs = [&](const RealRun& run) { return has_text(run) && run.texts[i] != alone; };
    if (std::ranges::any_of(runs, differs)) differing.push_back(i);
  }
  return differing;
}

}  // namespace llm
