#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "engine/generate/generate.h"
#include "engine/sampler/sampler.h"
#include "validate/self/text_checks.h"
#include "validate/self/text_path.h"

namespace llm {
namespace {

using Tokens = std::vector<TokenId>;

constexpr std::size_t kBatch = 7;         ///< so that what is kept takes several passes
constexpr std::size_t kSecondTokens = 4;  ///< generated after the second prompt
constexpr std::size_t kShownTokens = 12;
constexpr SamplerOptions kSampling = {.top_p = 0.95F, .repeat_penalty = 1.1F, .seed = 1};

/// Logits that a token was drawn from, with the tokens that the session held.
struct Drawn {
  Tokens held;
  std::vector<float> logits;
};

/// Passes everything on and notes each row of logits.
class RecordingSession final : public Session {
 public:
  explicit RecordingSession(Session& session) : session_(session) {}

  const Tokenizer& tokenizer() const override { return session_.tokenizer(); }
  std::size_t n_vocab() const override { return session_.n_vocab(); }
  std::size_t position() const override { return session_.position(); }
  std::size_t context() const override { return session_.context(); }
  std::size_t batch() const override { return session_.batch(); }
  Result<std::span<const float>> evaluate(std::span<const TokenId> tokens,
                                          LogitRows rows) override {
    LLM_TRY(const auto logits, session_.evaluate(tokens, rows));
    held_.insert(held_.end(), tokens.begin(), tokens.end());
    if (!logits.empty()) {
      const auto last = logits.last(n_vocab());
      drawn.push_back({held_, {last.begin(), last.end()}});
    }
    return logits;
  }
  void truncate(std::size_t n_positions) override {
    session_.truncate(n_positions);
    held_.resize(n_positions);
  }
  void set_probe(ProbeSink* sink) override { session_.set_probe(sink); }

  std::vector<Drawn> drawn;

 private:
  Session& session_;
  Tokens held_;
};

std::string text_of(const Tokens& tokens) {
  const auto few = std::span(tokens).first(std::min(kShownTokens, tokens.size()));
  return fmt::format("{} tokens: {}{}", tokens.size(), fmt::join(few, " "),
                     few.size() < tokens.size() ? " ..." : "");
}

/// One text, generated and then followed by the rule.
class ShiftCase {
 public:
  ShiftCase(const std::shared_ptr<const Model>& model, const ExecutorOptions& executor,
            const OpenSession& open, bool bos)
      : model_(model), executor_(executor), open_(open), bos_(bos) {}

  Result<CheckResult> run(std::uint64_t seed) {
    LLM_TRY(const auto session, open_(executor_));
    RecordingSession recording(*session);
    Generator generator(recording);
    const std::size_t context = executor_.context;
    std::mt19937_64 random(seed);
    // The first text shifts after three tokens, and again once the other half is full.
    LLM_RETURN_IF_ERROR(turn(generator, recording, draw(context - 3, bos_, random),
                             context / 2 + 3 + kSecondTokens));
    LLM_RETURN_IF_ERROR(
        turn(generator, recording, draw(context / 2, false, random), kSecondTokens));
    CheckResult result;
    result.name =
        fmt::format("context shift at {} positions{}", context, bos_ ? "" : ", a text without BOS");
    result.passed = failure_.empty() && n_shifts_ >= 3;
    result.detail =
        failure_.empty() ? fmt::format("{} shifts, {} tokens", n_shifts_, n_tokens_) : failure_;
    return result;
  }

 private:
  Tokens draw(std::size_t n, bool bos, std::mt19937_64& random) const {
    Tokens tokens;
    if (bos) tokens.push_back(*model_->tokenizer().spec().bos);
    draw_tokens(tokens, n, model_->config().n_vocab, random);
    return tokens;
  }

  Status turn(Generator& generator, RecordingSession& recording, const Tokens& prompt,
              std::size_t n_tokens) {
    GenerateOptions options;
    options.sampler = kSampling;
    options.max_tokens = n_tokens;
    options.ignore_eos = true;
    options.context_shift = true;
    recording.drawn.clear();
    LLM_TRY(const GenerateResult result, generator.run(prompt, options));
    make_room(prompt.size());
    kept_.insert(kept_.end(), prompt.begin(), prompt.end());
    if (recording.drawn.size() != result.ids.size()) {
      fail(fmt::format("{} tokens from {} rows of logits", result.ids.size(),
                       recording.drawn.size()));
    }
    for (std::size_t i = 0; i < result.ids.size() && failure_.empty(); ++i) {
      make_room(0);
      LLM_RETURN_IF_ERROR(compare(recording.drawn[i], result.ids[i]));
      kept_.push_back(result.ids[i]);
      ++n_tokens_;
    }
    return Ok{};
  }

  /// The rule: while there is too little room, the older half of what follows BOS is forgotten.
  void make_room(std::size_t n_new) {
    const auto& bos = model_->tokenizer().spec().bos;
    const std::ptrdiff_t first = bos && !kept_.empty() && kept_[0] == *bos ? 1 : 0;
    while (kept_.size() + n_new > executor_.context) {
      const auto n = static_cast<std::ptrdiff_t>(kept_.size()) - first;
      kept_.erase(kept_.begin() + first, kept_.begin() + first + (n + 1) / 2);
      n_forgotten_ += static_cast<std::size_t>((n + 1) / 2);
      fresh_.reset();
      ++n_shifts_;
    }
  }

  Status compare(const Drawn& drawn, TokenId id) {
    if (drawn.held != kept_) {
      fail(fmt::format("the session holds {}; the rule keeps {}", text_of(drawn.held),
                       text_of(kept_)));
      return Ok{};
    }
    if (!fresh_) {
      ExecutorOptions options = executor_;
      options.batch = options.context;
      LLM_TRY(fresh_, open_sequence(model_, options));
    }
    LLM_TRY(const auto rows,
            fresh_->evaluate(std::span(kept_).subspan(fresh_->position()), LogitRows::kAll));
    const auto expected = rows.last(fresh_->n_vocab());
    if (first_unequal(drawn.logits, expected) < expected.size()) {
      fail(fmt::format("its logits are not those of a new session fed the {} kept tokens",
                       kept_.size()));
      return Ok{};
    }
    std::vector<float> allowed(expected.begin(), expected.end());
    for (const TokenId end : model_->tokenizer().spec().end_of_generation)
      allowed[static_cast<std::size_t>(end)] = -std::numeric_limits<float>::infinity();
    const std::size_t position = n_forgotten_ + kept_.size();
    LLM_TRY(const TokenId by_rule, Sampler(kSampling).sample(allowed, kept_, position));
    if (id != by_rule) {
      fail(fmt::format("token {} is drawn at position {}, the rule draws {}", id, position,
                       by_rule));
    }
    return Ok{};
  }

  void fail(const std::string& what) {
    failure_ =
        fmt::format("after {} generated tokens and {} shifts: {}", n_tokens_, n_shifts_, what);
  }

  const std::shared_ptr<const Model>& model_;
  const ExecutorOptions& executor_;
  const OpenSession& open_;
  bool bos_;
  Tokens kept_;
  std::unique_ptr<Session> fresh_;  ///< was fed the kept tokens and nothing else
  std::size_t n_tokens_ = 0;
  std::size_t n_shifts_ = 0;
  std::size_t n_forgotten_ = 0;
  std::string failure_;
};

}  // namespace

Result<std::vector<CheckResult>> check_context_shift(const std::shared_ptr<const Model>& model,
                                                     KvType kv, const ShiftCheckOptions& options) {
  OpenSession open = options.open;
  if (!open) {
    open = [&](const ExecutorOptions& executor) -> Result<std::unique_ptr<Session>> {
      LLM_TRY(auto sequence, open_sequence(model, executor));
      return std::unique_ptr<Session>(std::move(sequence));
    };
  }
  const bool has_bos = model->tokenizer().spec().bos.has_value();
  std::vector<CheckResult> results;
  const auto run = [&](std::size_t context, bool bos) -> Status {
    const ExecutorOptions executor{
        .context = std::min(context, model->config().context), .kv = kv, .batch = kBatch};
    if (executor.context < 8) return Ok{};
    LLM_TRY(CheckResult result, ShiftCase(model, executor, open, bos).run(options.seed));
    result.name = fmt::format("{}, {}: {}", model->compute() == Compute::kInt8 ? "int8" : "f32",
                              isa_name(model->isa()), result.name);
    results.push_back(std::move(result));
    return Ok{};
  };
  for (const std::size_t context : options.contexts) LLM_RETURN_IF_ERROR(run(context, has_bos));
  if (options.without_bos && has_bos) LLM_RETURN_IF_ERROR(run(options.contexts.front(), false));
  return results;
}

}  // namespace llm
