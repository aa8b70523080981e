#include "validate/outputs/verify/run.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "validate/outputs/verify/verdict.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/dump/engine_dump.h"
#include "validate/reference/fault_localization/op_replay.h"
#include "validate/reference/gates/drift.h"

namespace llm {
namespace {

// docs/verify.md: limits are multiples of what noise of the expected size does to this model.
constexpr double kF32Units = 100;
constexpr double kNoiseUnits = 10;
constexpr std::size_t kNoisePrompts = 3;
constexpr int kNoiseRuns = 2;

Result<std::unique_ptr<Sequence>> open(const std::shared_ptr<const Model>& model,
                                       const VerifyReference& reference) {
  return open_sequence(model, {.context = reference.context(), .kv = usual_kv(model->compute())});
}

/// The engine's own choices, one decode call each, up to the first that differs.
Result<std::vector<TopStep>> walk(Session& session, const VerifyPrompt& prompt, std::size_t top_k) {
  session.truncate(0);
  std::vector<TopStep> steps;
  std::vector<TokenId> next = prompt.ids;
  for (const TopStep& expected : prompt.steps) {
    LLM_TRY(const std::span<const float> logits, session.evaluate(next, LogitRows::kLast));
    steps.push_back(top_step(logits, top_k));
    if (steps.back().choice() != expected.choice()) break;
    next = {steps.back().choice()};
  }
  return steps;
}

/// The prompt and the reference's tokens but the last.
std::vector<TokenId> forced_tokens(const VerifyPrompt& prompt) {
  std::vector<TokenId> tokens = prompt.ids;
  for (const TopStep& step : std::span(prompt.steps).first(prompt.steps.size() - 1))
    tokens.push_back(step.choice());
  return tokens;
}

/// Logits after the prompt and after each of the reference's tokens but the last.
Result<std::span<const float>> forced_rows(Session& session, const VerifyPrompt& prompt) {
  session.truncate(0);
  const std::vector<TokenId> tokens = forced_tokens(prompt);
  const std::size_t before = prompt.ids.size() - 1;
  if (before > 0)
    LLM_RETURN_IF_ERROR(session.evaluate(std::span(tokens).first(before), LogitRows::kNone));
  return session.evaluate(std::span(tokens).subspan(before), LogitRows::kAll);
}

Status check_vocabulary(const VerifyReference& reference, const Model& model) {
  LLM_RETURN_IF_ERROR(check_ids(reference, model.config().n_vocab));
  const std::string hash = tokenizer_hash(model.tokenizer().spec());
  if (reference.tokenizer_hash.empty() || reference.tokenizer_hash == hash) return Ok{};
  return Error{
      ErrorCode::kIntegrity, "tokenizer_hash",
      fmt::format("found {}, need {}, the model's vocabulary", reference.tokenizer_hash, hash)};
}

/// The prompts whose text the model's tokenizer encodes to other ids.
void check_texts(const VerifyReference& reference, const Tokenizer& tokenizer,
                 VerifyOutcome& outcome) {
  for (const VerifyPrompt& prompt : reference.prompts) {
    if (!prompt.text) continue;
    ++outcome.texts;
    const auto ids = tokenizer.encode(*prompt.text, {.add_eos = false});
    if (ids == prompt.ids) continue;
    const auto [own, wanted] = std::ranges::mismatch(ids, prompt.ids);
    outcome.text_problems.push_back(
        fmt::format("{} differs at token {}", prompt.id, wanted - prompt.ids.begin()));
  }
}

class VerifyRun {
 public:
  VerifyRun(const VerifyReference& reference, const Progress& progress)
      : reference_(reference), progress_(progress) {}

  Result<VerifyOutcome> run(VerifyGate gate, const ModelLoader& load) {
    outcome_.gate = gate;
    outcome_.top_k = reference_.top_k;
    LLM_RETURN_IF_ERROR(run_int8(load));
    LLM_RETURN_IF_ERROR(run_f32(load));
    return std::move(outcome_);
  }

 private:
  Status run_int8(const ModelLoader& load) {
    LLM_TRY(const auto model, load(Compute::kInt8));
    LLM_RETURN_IF_ERROR(check_vocabulary(reference_, *model));
    check_texts(reference_, model->tokenizer(), outcome_);
    n_vocab_ = model->config().n_vocab;
    LLM_TRY(const auto session, open(model, reference_));
    for (const VerifyPrompt& prompt : reference_.prompts) {
      LLM_TRY(const auto walked, walk(*session, prompt, reference_.top_k));
      LLM_TRY(const auto rows, forced_rows(*session, prompt));
      rows_.emplace_back(rows.begin(), rows.end());
      std::vector<TopStep> forced;
      for (std::size_t t = 0; t < reference_.n_steps; ++t)
        forced.push_back(top_step(rows.subspan(t * n_vocab_, n_vocab_), reference_.top_k));
      outcome_.prompts.push_back({.id = prompt.id,
                                  .lockstep = compare_lockstep(prompt.steps, walked),
                                  .forced = compare_forced(prompt.steps, forced)});
      add_top(prompt, rows, outcome_.int8_error);
      note(outcome_.prompts.size());
    }
    return Ok{};
  }

  Status run_f32(const ModelLoader& load) {
    LLM_TRY(const auto model, load(Compute::kF32));
    LLM_TRY(const auto session, open(model, reference_));
    for (std::size_t p = 0; p < reference_.prompts.size(); ++p) {
      const VerifyPrompt& prompt = reference_.prompts[p];
      LLM_TRY(const auto rows, forced_rows(*session, prompt));
      outcome_.noise.add(rows_[p], rows);
      rows_[p] = {};
      add_top(prompt, rows, outcome_.f32_error);
      if (p < kNoisePrompts) LLM_RETURN_IF_ERROR(expect_noise(model, prompt));
      note(p + 1);
    }
    return Ok{};
  }

  /// Raises the limits to what this prompt's logits may be off: by f32 arithmetic, and by int8
  /// activations and f16 keys and values.
  Status expect_noise(const std::shared_ptr<const Model>& f32, const VerifyPrompt& prompt) {
    LLM_TRY(const auto int8, f32->with_compute(Compute::kInt8));
    const std::vector<TokenId> tokens = forced_tokens(prompt);
    const ExecutorOptions options{.context = tokens.size(), .kv = KvType::kF32};
    LLM_TRY(const Dump clean, record_activations(f32, options, false, tokens, "llmcheck", ""));
    const auto drift_at_logits = [&](OpNoise noise) -> Result<double> {
      LLM_TRY(const OpNoise drift,
              measure_drift({f32, tokens, {}, clean, std::move(noise)}, kNoiseRuns));
      return drift.at({ProbeSink::kGlobal, "logits"});
    };
    const Replay replay(int8, KvType::kF16);
    LLM_TRY(OpNoise rounding, rounding_noise(replay, clean));
    LLM_TRY(const double noise, drift_at_logits(std::move(rounding)));
    LLM_TRY(const double arithmetic, drift_at_logits(arithmetic_noise(replay)));
    outcome_.noise_limit = std::max(outcome_.noise_limit, kNoiseUnits * noise);
    outcome_.f32_limit = std::max(outcome_.f32_limit, kF32Units * arithmetic);
    return Ok{};
  }

  /// The difference from the reference where it is known: at its most likely tokens.
  void add_top(const VerifyPrompt& prompt, std::span<const float> rows, LogitNoise& error) const {
    for (std::size_t t = 0; t < prompt.steps.size(); ++t) {
      std::vector<float> actual;
      for (const TokenId id : prompt.steps[t].ids)
        actual.push_back(rows[t * n_vocab_ + static_cast<std::size_t>(id)]);
      error.add(actual, prompt.steps[t].logits);
    }
  }

  void note(std::size_t done) const {
    if (progress_) progress_("verify", done, reference_.prompts.size());
  }

  const VerifyReference& reference_;
  const Progress& progress_;
  std::size_t n_vocab_ = 0;
  std::vector<std::vector<float>> rows_;  ///< of the int8 run, until the f32 run has met them
  VerifyOutcome outcome_;
};

}  // namespace

Result<VerifyOutcome> run_verify(const VerifyReference& reference, VerifyGate gate,
                                 const ModelLoader& load, const Progress& progress) {
  return VerifyRun(reference, progress).run(gate, load);
}

}  // namespace llm
