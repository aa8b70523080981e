#include "engine/generation/generate.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "engine/generation/generation_state.h"

namespace llm {
namespace {

bool interrupted(const GenerateOptions& options) {
  return options.interrupted && options.interrupted();
}

/// However run() ends, its session is where its text is.
struct Settled {
  SpeculativeSession& session;
  ~Settled() { session.settle(); }
};

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
  constexpr std::string_view kNames[] = {"eos", "length", "stop_string", "context_full",
                                         "interrupted"};
  return kNames[static_cast<std::size_t>(reason)];
}

std::vector<std::size_t> checkpoints_of(std::span<const std::size_t> message_ends,
                                        std::size_t n_prompt) {
  constexpr std::size_t kLeastApart = 64;  // what is between is computed again soon enough
  const std::size_t last = n_prompt - std::min<std::size_t>(n_prompt, 1);
  const auto ends = message_ends.first(static_cast<std::size_t>(
      std::ranges::lower_bound(message_ends, last) - message_ends.begin()));
  std::vector<std::size_t> positions;
  for (const std::size_t end : ends) {
    const std::size_t before = positions.empty() ? 0 : positions.back();
    if (end == ends.back() || end - before >= kLeastApart) positions.push_back(end);
  }
  positions.push_back(last);
  return positions;
}

void Generator::set_text(std::span<const TokenId> tokens) {
  const auto [differs, ignored] = std::ranges::mismatch(tokens_, tokens);
  auto shared = static_cast<std::size_t>(differs - tokens_.begin());
  if (shared == tokens.size() && shared > 0) --shared;  // the last one's logits are drawn from
  session_.truncate(session_.reusable(std::min(session_.position(), shared)));
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
    const LogitRows rows = options.on_logits && !options.only_drawn ? LogitRows::kAll
                           : is_last                                ? LogitRows::kLast
                                                                    : LogitRows::kNone;
    LLM_TRY(logits, session_.evaluate(std::span(tokens_).subspan(at, count), rows));
    if (options.on_logits && !logits.empty()) options.on_logits(logits);
    if (total > 1 && options.progress) options.progress("prefill", at + count - first, total);
  }
  return logits.last(std::min(logits.size(), session_.n_vocab()));
}

/// Draws tokens until a reason to stop.
Status Generator::continue_text(const GenerateOptions& options, GenerationState& text) {
  const std::size_t n_pending = tokens_.size() - session_.position();
  LLM_TRY(auto logits, evaluate_pending(options));
  text.note_prefill(n_pending);
  while (true) {
    if (logits.empty() || interrupted(options)) text.end(StopReason::kInterrupted);
    if (text.has_ended()) return Ok{};
    LLM_RETURN_IF_ERROR(text.draw(logits, tokens_, next_draw()));
    LLM_RETURN_IF_ERROR(text.advance(tokens_, session_.passes()));
    if (text.has_ended()) return Ok{};
    if (tokens_.size() > session_.context()) {
      const auto shorter = options.shorten ? options.shorten() : std::vector<TokenId>();
      if (shorter.empty() && !options.context_shift) {
        text.end(StopReason::kContextFull);
        return Ok{};
      }
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
  session_.set_checkpoints(checkpoints_of(options.message_ends, tokens_.size()));
  GenerationState text(session_.tokenizer(), options, sink);
  text.result.cropped = cropped;
  const std::size_t proposed = session_.proposed();
  const std::size_t accepted = session_.accepted();
  const Settled settled{session_};
  const SpeculativeSession::Note note = [&](const LookaheadPass& pass) {
    options.speculation->note(pass);
  };
  if (options.speculation != nullptr) {
    session_.set_hooks(
        [&](std::size_t most) {
          return text.propose(*options.speculation, tokens_, session_.state(), next_draw(), most);
        },
        note);
  }
  LLM_RETURN_IF_ERROR(continue_text(options, text));
  if (options.speculation != nullptr) session_.set_hooks({}, note);  // nothing more is drawn
  LLM_RETURN_IF_ERROR(finish(options, text));
  text.result.proposed = session_.proposed() - proposed;
  text.result.accepted = session_.accepted() - accepted;
  return std::move(text.result);
}

/// Shows what was held back, and evaluates the last token for who wants every row of logits.
Status Generator::finish(const GenerateOptions& options, GenerationState& text) {
  LLM_RETURN_IF_ERROR(text.finish());
  const bool fits = tokens_.size() <= session_.context();
  if (options.on_logits && fits && !interrupted(options)) {
    LLM_RETURN_IF_ERROR(evaluate_pending(options));
  }
  return Ok{};
}

Result<GenerateResult> generate(Session& session, std::span<const TokenId> prompt,
                                const GenerateOptions& options, const GenerateSink& sink) {
  return Generator(session).run(prompt, options, sink);
}

}  // namespace llm
