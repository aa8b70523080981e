#include "engine/generation/generation_state.h"

#include <algorithm>
#include <utility>

#include "engine/generation/draw.h"

namespace llm {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

GenerationState::GenerationState(const Tokenizer& tokenizer, const GenerateOptions& options,
                                 const GenerateSink& sink)
    : tokenizer_(tokenizer),
      options_(options),
      sink_(sink),
      decoder_(tokenizer, {.render_special = options.show_special,
                           .keep_invalid = false,
                           .continues_text = options.continues_text}),
      matcher_(options.stop) {
  if (options.grammar != nullptr) grammar_.emplace(options.grammar, options.stop_tokens);
}

Status GenerationState::draw(std::span<const float> row, std::span<const TokenId> past,
                             std::uint64_t number) {
  drawn_.reset();
  if (has_ended_ || has_all()) return Ok{};
  LLM_TRY(const TokenId id, draw_token(tokenizer_, row, past, number, result.ids.size(), options_,
                                       grammar_ ? &*grammar_ : nullptr));
  drawn_ = Drawn{id, {}};
  if (options_.logprobs) drawn_->logprobs = logprobs_of(row, id, *options_.logprobs);
  return Ok{};
}

std::vector<TokenId> GenerationState::propose(Speculation& speculation,
                                              std::span<const TokenId> tokens,
                                              const SequenceState* state, std::uint64_t number,
                                              std::size_t most) const {
  // The last token that is wanted is not evaluated.
  if (options_.max_tokens)
    most = std::min(most, *options_.max_tokens - std::min(*options_.max_tokens, n_drawn_ + 1));
  const auto guess = [&](std::span<const float> logits,
                         std::span<const TokenId> past) -> std::optional<TokenId> {
    const std::uint64_t ahead = past.size() - tokens.size();
    const auto id =
        draw_token(tokenizer_, logits, past, number + ahead, result.ids.size() + ahead, options_);
    if (!id.ok() || ends_text(tokenizer_, *id, options_)) return std::nullopt;
    return *id;
  };
  std::vector<TokenId> proposal = speculation.propose(
      {.text = tokens, .draw = guess, .interrupted = options_.interrupted, .state = state}, most);
  const auto end = std::ranges::find_if(
      proposal, [&](TokenId id) { return ends_text(tokenizer_, id, options_); });
  proposal.erase(end, proposal.end());
  return proposal;
}

Status GenerationState::advance(std::vector<TokenId>& tokens, std::size_t n_passes) {
  auto drawn = std::exchange(drawn_, std::nullopt);
  if (!drawn) {
    end(StopReason::kLength);
    return Ok{};
  }
  note_draw(n_passes);
  if (ends_text(tokenizer_, drawn->id, options_)) {
    end_logprobs = std::move(drawn->logprobs);
    end(StopReason::kEos);
    return Ok{};
  }
  if (grammar_) LLM_RETURN_IF_ERROR(grammar_->accept(drawn->id));
  tokens.push_back(drawn->id);
  result.ids.push_back(drawn->id);
  const Logprobs* logprobs = drawn->logprobs ? &*drawn->logprobs : nullptr;
  if (logprobs != nullptr) result.logprobs.push_back(*logprobs);
  LLM_RETURN_IF_ERROR(show(drawn->id, matcher_.push(decoder_.push(drawn->id)), logprobs));
  if (matcher_.matched()) {
    end(StopReason::kStopString);
  } else if (has_all()) {
    end(StopReason::kLength);
  }
  return Ok{};
}

void GenerationState::end(StopReason reason) {
  if (!has_ended_) result.stop_reason = reason;
  has_ended_ = true;
}

Status GenerationState::finish() {
  if (matcher_.matched()) return Ok{};
  std::string rest = matcher_.push(decoder_.flush());
  rest += matcher_.flush();
  return rest.empty() ? Status(Ok{}) : show(std::nullopt, rest, nullptr);
}

void GenerationState::note_prefill(std::size_t n_tokens) {
  result.prefill_tokens = n_tokens;
  result.prefill_seconds = seconds_since(started_);
}

void GenerationState::note_draw(std::size_t n_passes) {
  if (n_drawn_++ == 0) {
    result.first_token_seconds = seconds_since(started_);
    first_pass_ = n_passes;
  } else {
    result.token_seconds.push_back(seconds_since(last_draw_));
    result.decode_passes = n_passes - first_pass_;
  }
  last_draw_ = Clock::now();
}

Status GenerationState::show(std::optional<TokenId> id, const std::string& text,
                             const Logprobs* logprobs) {
  result.text += text;
  if (!sink_) return Ok{};
  return sink_({.id = id, .text = text, .logprobs = logprobs});
}

}  // namespace llm
