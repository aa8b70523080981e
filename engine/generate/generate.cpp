#include "engine/generate/generate.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "engine/generate/stop_matcher.h"
#include "tokenizer/stream_decoder.h"

namespace llm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool interrupted(const GenerateOptions& options) {
  return options.interrupted && options.interrupted();
}

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEos:
      return "eos";
    case StopReason::kLength:
      return "length";
    case StopReason::kStopString:
      return "stop_string";
    case StopReason::kContextFull:
      return "context_full";
    case StopReason::kInterrupted:
      return "interrupted";
  }
  return "";
}

/// The text of one run as it grows: ids to characters to what may be shown, and its clock.
class Generator::Text {
 public:
  Text(const Tokenizer& tokenizer, const GenerateOptions& options, const GenerateSink& sink)
      : decoder_(tokenizer, {.render_special = false,
                             .keep_invalid = false,
                             .continues_text = options.continues_text}),
        matcher_(options.stop),
        sink_(sink) {}

  void note_draw() {
    if (drawn_++ == 0) {
      result.first_token_seconds = seconds_since(started_);
    } else {
      result.token_seconds.push_back(seconds_since(last_draw_));
    }
    last_draw_ = Clock::now();
  }

  void note_prefill(std::size_t n_tokens) {
    result.prefill_tokens = n_tokens;
    result.prefill_seconds = seconds_since(started_);
  }

  Status add(TokenId id, const Logprobs* logprobs) {
    result.ids.push_back(id);
    if (logprobs != nullptr) result.logprobs.push_back(*logprobs);
    return show(id, matcher_.push(decoder_.push(id)), logprobs);
  }

  bool stop_string_came() const { return matcher_.matched(); }

  /// Gives out what was held back for a character or a stop string that did not come.
  Status finish() {
    if (matcher_.matched()) return Ok{};
    std::string rest = matcher_.push(decoder_.flush());
    rest += matcher_.flush();
    return rest.empty() ? Status(Ok{}) : show(std::nullopt, rest, nullptr);
  }

  GenerateResult result;

 private:
  Status show(std::optional<TokenId> id, const std::string& text, const Logprobs* logprobs) {
    result.text += text;
    if (!sink_) return Ok{};
    return sink_({.id = id, .text = text, .logprobs = logprobs});
  }

  StreamDecoder decoder_;
  StopMatcher matcher_;
  const GenerateSink& sink_;
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_draw_;
  std::size_t drawn_ = 0;
};

void Generator::set_text(std::span<const TokenId> tokens) {
  const auto [differs, ignored] = std::ranges::mismatch(tokens_, tokens);
  auto shared = static_cast<std::size_t>(differs - tokens_.begin());
  if (shared == tokens.size() && shared > 0) --shared;  // the last one's logits are drawn from
  session_.truncate(std::min(session_.position(), shared));
  if (tokens.size() < tokens_.size()) forgotten_ += tokens_.size() - tokens.size();
  tokens_.assign(tokens.begin(), tokens.end());
}

/// Cuts the front, but for BOS, of a prompt that does not fit even when all else is forgotten.
/// @return the tokens cut
std::size_t Generator::crop(std::vector<TokenId>& prompt) const {
  const auto& bos = session_.tokenizer().spec().bos;
  const std::size_t first = !prompt.empty() && bos && prompt.front() == *bos ? 1 : 0;
  const std::size_t room = session_.context() - std::min(n_kept(), session_.context());
  if (prompt.size() <= room || first >= room) return 0;
  const auto from = prompt.begin() + static_cast<std::ptrdiff_t>(first);
  const std::size_t excess = prompt.size() - room;
  prompt.erase(from, from + static_cast<std::ptrdiff_t>(excess));
  return excess;
}

/// Leading tokens that are never forgotten: BOS.
std::size_t Generator::n_kept() const {
  const auto& bos = session_.tokenizer().spec().bos;
  const std::size_t keep = !tokens_.empty() && bos && tokens_.front() == *bos ? 1 : 0;
  return keep;
}

/// Makes sure that the text and `n_new` more tokens fit into the context, by forgetting the older
/// half of what follows BOS if it may. What is left keeps its tokens but not its positions, so all
/// of it becomes pending again.
Status Generator::make_room(std::size_t n_new, bool context_shift) {
  const std::size_t context = session_.context();
  const std::size_t keep = n_kept();
  while (tokens_.size() + n_new > context) {
    const std::size_t droppable = tokens_.size() - std::min(keep, tokens_.size());
    if (!context_shift || droppable == 0) {
      return Error{.code = ErrorCode::kUsage,
                   .field = "prompt",
                   .message = fmt::format("found {} tokens, need at most {} (the context)",
                                          tokens_.size() + n_new, context),
                   .hint = context_shift ? "raise -c or shorten the prompt"
                                         : "raise -c, shorten the prompt or use --context-shift"};
    }
    const std::size_t drop = (droppable + 1) / 2;
    const auto first = tokens_.begin() + static_cast<std::ptrdiff_t>(keep);
    tokens_.erase(first, first + static_cast<std::ptrdiff_t>(drop));
    forgotten_ += drop;
    session_.truncate(0);
  }
  return Ok{};
}

/// Evaluates what of the text is not evaluated yet, in batches so that an interrupt is seen between
/// them. @return the last row of logits; none after an interrupt
Result<std::span<const float>> Generator::evaluate_pending(const GenerateOptions& options) {
  const std::size_t first = session_.position();
  const std::size_t total = tokens_.size() - first;
  std::span<const float> logits;
  while (session_.position() < tokens_.size()) {
    if (total > 1 && interrupted(options)) return std::span<const float>{};
    const std::size_t at = session_.position();
    const std::size_t count = std::min(session_.batch(), tokens_.size() - at);
    const bool is_last = at + count == tokens_.size();
    const LogitRows rows = options.on_logits ? LogitRows::kAll
                           : is_last         ? LogitRows::kLast
                                             : LogitRows::kNone;
    LLM_TRY(logits, session_.evaluate(std::span(tokens_).subspan(at, count), rows));
    if (options.on_logits) options.on_logits(logits);
    if (total > 1 && options.progress) options.progress("prefill", at + count - first, total);
  }
  return logits.last(std::min(logits.size(), session_.n_vocab()));
}

bool Generator::ends_text(TokenId id, const GenerateOptions& options) const {
  return session_.tokenizer().is_end_of_generation(id) ||
         std::ranges::find(options.stop_tokens, id) != options.stop_tokens.end();
}

Result<TokenId> Generator::draw(std::span<const float> logits,
                                const GenerateOptions& options) const {
  const Sampler sampler(options.sampler, options.sequence);
  const std::uint64_t position = next_draw();
  if (!options.ignore_eos) return sampler.sample(logits, tokens_, position);
  std::vector<float> masked(logits.begin(), logits.end());
  for (std::size_t i = 0; i < masked.size(); ++i) {
    if (ends_text(static_cast<TokenId>(i), options)) {
      masked[i] = -std::numeric_limits<float>::infinity();
    }
  }
  return sampler.sample(masked, tokens_, position);
}

/// Draws tokens until a reason to stop.
Status Generator::continue_text(const GenerateOptions& options, Text& text) {
  GenerateResult& result = text.result;
  const auto stop = [&result](StopReason reason) {
    result.stop_reason = reason;
    return Ok{};
  };
  const std::size_t n_pending = tokens_.size() - session_.position();
  LLM_TRY(auto logits, evaluate_pending(options));
  text.note_prefill(n_pending);
  while (true) {
    if (logits.empty() || interrupted(options)) return stop(StopReason::kInterrupted);
    if (options.max_tokens && result.ids.size() >= *options.max_tokens) {
      return stop(StopReason::kLength);
    }
    LLM_TRY(const TokenId id, draw(logits, options));
    text.note_draw();
    if (ends_text(id, options)) return stop(StopReason::kEos);
    std::optional<Logprobs> logprobs;
    if (options.logprobs) logprobs = logprobs_of(logits, id, *options.logprobs);
    tokens_.push_back(id);
    LLM_RETURN_IF_ERROR(text.add(id, logprobs ? &*logprobs : nullptr));
    if (text.stop_string_came()) return stop(StopReason::kStopString);
    if (options.max_tokens && result.ids.size() >= *options.max_tokens) {
      return stop(StopReason::kLength);
    }
    if (tokens_.size() > session_.context()) {
      const auto shorter = options.shorten ? options.shorten() : std::vector<TokenId>();
      if (shorter.empty() && !options.context_shift) return stop(StopReason::kContextFull);
      if (!shorter.empty()) set_text(shorter);
      LLM_RETURN_IF_ERROR(make_room(0, options.context_shift));
    }
    LLM_TRY(logits, evaluate_pending(options));
  }
}

Result<GenerateResult> Generator::run(std::span<const TokenId> given,
                                      const GenerateOptions& options, const GenerateSink& sink) {
  std::vector<TokenId> prompt(given.begin(), given.end());
  const std::size_t cropped = options.context_shift ? crop(prompt) : 0;
  LLM_RETURN_IF_ERROR(make_room(prompt.size(), options.context_shift));
  tokens_.insert(tokens_.end(), prompt.begin(), prompt.end());
  if (session_.position() == tokens_.size()) {
    return Error{.code = ErrorCode::kUsage,
                 .field = "prompt",
                 .message = "found no token, need at least one",
                 .hint = "the model has no BOS token to start from"};
  }
  Text text(session_.tokenizer(), options, sink);
  text.result.cropped = cropped;
  LLM_RETURN_IF_ERROR(continue_text(options, text));
  LLM_RETURN_IF_ERROR(text.finish());
  const bool fits = tokens_.size() <= session_.context();
  if (options.on_logits && fits && !interrupted(options)) {
    LLM_RETURN_IF_ERROR(evaluate_pending(options));
  }
  return std::move(text.result);
}

Result<GenerateResult> generate(Session& session, std::span<const TokenId> prompt,
                                const GenerateOptions& options, const GenerateSink& sink) {
  return Generator(session).run(prompt, options, sink);
}

}  // namespace llm
