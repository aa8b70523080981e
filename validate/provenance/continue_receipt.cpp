#include "validate/provenance/continue_receipt.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/sha256.h"
#include "engine/generation/generation_state.h"
#include "validate/provenance/receipt_checks.h"

namespace llm {
namespace {

Error usage(std::string field, std::string message) {
  return {ErrorCode::kUsage, std::move(field), std::move(message)};
}

/// The text that an edit of that number replaces.
Result<std::string*> text_of_message(Receipt& receipt, std::size_t number) {
  std::vector<std::string*> texts;
  for (ReceiptMessage& message : receipt.messages) texts.push_back(&message.content);
  if (receipt.prompt) {
    if (!receipt.system.empty()) texts.push_back(&receipt.system);
    texts.push_back(&*receipt.prompt);
  }
  if (texts.empty())
    return Error{ErrorCode::kUnsupported, "prompt",
                 "found only ids, need a receipt with its prompt or messages for an edit"};
  if (number == 0 || number > texts.size())
    return usage("message",
                 fmt::format("found {}, need 1..{}, the receipt's messages", number, texts.size()));
  return texts[number - 1];
}

Status keep_tokens(Receipt& receipt, std::size_t n) {
  if (receipt.grammar)
    return Error{ErrorCode::kUnsupported, "options.grammar",
                 fmt::format("found with {} tokens that are kept, need 0: it describes the output "
                             "from its beginning",
                             n)};
  if (receipt.max_tokens && *receipt.max_tokens < n)
    return usage("n", fmt::format("found {}, need at least {}, the tokens that are kept",
                                  *receipt.max_tokens, n));
  if (receipt.max_tokens) *receipt.max_tokens -= n;
  receipt.sampler.min_tokens -= std::min(receipt.sampler.min_tokens, n);
  receipt.prompt_ids.insert(receipt.prompt_ids.end(), receipt.ids.begin(),
                            receipt.ids.begin() + static_cast<std::ptrdiff_t>(n));
  receipt.prompt.reset();
  receipt.messages.clear();
  receipt.system.clear();
  return Ok{};
}

/// A run with its rows of logits, from the prompt's last position on.
class Continued {
 public:
  Continued(Sequence& sequence, const Receipt& receipt)
      : sequence_(sequence),
        tokens_(receipt.prompt_ids),
        first_drawn_(receipt.prompt_ids.size() - 1),
        context_(receipt.context) {}

  std::vector<TokenId>& tokens() { return tokens_; }
  std::span<const float> row() const { return row_; }
  bool is_full() const { return tokens_.size() > context_; }
  std::string logits_sha256() { return hash_.hex(); }

  /// Evaluates the tokens that have a position and are not evaluated yet.
  Status evaluate() {
    const std::size_t end = std::min(tokens_.size(), context_);
    while (sequence_.position() < end) {
      const std::size_t at = sequence_.position();
      const bool wanted = at >= first_drawn_;
      const std::size_t n = std::min((wanted ? end : std::min(end, first_drawn_)) - at,
                                     receipt_batch(sequence_.n_vocab()));
      LLM_TRY(const auto rows, sequence_.evaluate(std::span(tokens_).subspan(at, n),
                                                  wanted ? LogitRows::kAll : LogitRows::kNone));
      if (!wanted) continue;
      hash_.update(std::as_bytes(rows));
      row_ = rows.last(sequence_.n_vocab());
    }
    return Ok{};
  }

 private:
  Sequence& sequence_;
  std::vector<TokenId> tokens_;
  std::size_t first_drawn_;
  std::size_t context_;
  Sha256 hash_;
  std::span<const float> row_;  ///< of the last position
};

}  // namespace

Result<Receipt> branch_of(const Model& model, Receipt receipt, std::size_t n_kept,
                          std::span<const MessageEdit> edits) {
  LLM_CHECK(n_kept <= receipt.ids.size());
  for (const MessageEdit& edit : edits) {
    LLM_TRY(std::string * text, text_of_message(receipt, edit.number));
    *text = edit.text;
  }
  if (!edits.empty()) {
    ReceiptModel of_model(model);
    LLM_TRY(const auto style, of_model.style(receipt));
    LLM_TRY(receipt.prompt_ids, encode_prompt(receipt, model.tokenizer(), style.get()));
    if (receipt.prompt_ids.empty()) return usage("prompt", "found no token, need at least one");
  }
  if (n_kept > 0) LLM_RETURN_IF_ERROR(keep_tokens(receipt, n_kept));
  receipt.ids.clear();
  receipt.text.clear();
  receipt.stop_reason = StopReason::kLength;
  receipt.rows_sha256.reset();
  return receipt;
}

Result<Receipt> continue_receipt(const std::shared_ptr<const Model>& model, const Receipt& receipt,
                                 const ContinueOptions& how) {
  LLM_CHECK(how.n_given <= receipt.ids.size());
  ReceiptModel of_model(*model);
  LLM_TRY(const ReceiptTerms terms, ReceiptTerms::of(of_model, receipt));
  if (receipt.prompt_ids.size() > receipt.context)
    return usage("prompt", fmt::format("found {} tokens, need at most {} (the context)",
                                       receipt.prompt_ids.size(), receipt.context));
  LLM_TRY(const auto sequence,
          open_sequence(model, {.context = receipt.context, .kv = receipt.kv, .store = how.store},
                        {.share_prefix = how.store != nullptr}));
  if (how.store != nullptr)
    sequence->adopt(std::span(receipt.prompt_ids).first(receipt.prompt_ids.size() - 1));
  Continued run(*sequence, receipt);
  GenerationState text(model->tokenizer(), terms.options, how.sink);
  for (std::size_t i = 0; i < how.n_given && !text.has_ended(); ++i) {
    text.take(receipt.ids[i]);
    LLM_RETURN_IF_ERROR(text.advance(run.tokens(), 0));
  }
  // A run that was interrupted is one again where it was.
  const auto is_interrupted = [&] {
    const bool again = receipt.stop_reason == StopReason::kInterrupted &&
                       text.result.ids.size() == receipt.ids.size();
    return again || (how.interrupted && how.interrupted());
  };
  LLM_RETURN_IF_ERROR(run.evaluate());
  while (!text.has_ended()) {
    if (run.is_full() || is_interrupted()) {
      text.end(run.is_full() ? StopReason::kContextFull : StopReason::kInterrupted);
      break;
    }
    LLM_RETURN_IF_ERROR(text.draw(run.row(), run.tokens(), run.tokens().size()));
    LLM_RETURN_IF_ERROR(text.advance(run.tokens(), 0));
    LLM_RETURN_IF_ERROR(run.evaluate());
  }
  LLM_RETURN_IF_ERROR(text.finish());
  Receipt made = receipt;
  made.ids = std::move(text.result.ids);
  made.text = std::move(text.result.text);
  made.stop_reason = text.result.stop_reason;
  made.drawn_logits_sha256 = run.logits_sha256();
  return made;
}

std::string output_difference(const Receipt& recorded, const Receipt& made,
                              const Tokenizer& tokenizer) {
  const auto [a, b] = std::ranges::mismatch(recorded.ids, made.ids);
  if (a != recorded.ids.end() || b != made.ids.end()) {
    const auto words = [&](const std::vector<TokenId>& ids, auto at) {
      return at == ids.end() ? std::string("the end") : shown_token(tokenizer, *at);
    };
    return fmt::format("token {}: the receipt has {}, drawn is {}", a - recorded.ids.begin(),
                       words(recorded.ids, a), words(made.ids, b));
  }
  if (recorded.drawn_logits_sha256 != made.drawn_logits_sha256)
    return fmt::format("the tokens are equal, the logits are not: found SHA-256 {}, need {}",
                       made.drawn_logits_sha256, recorded.drawn_logits_sha256);
  if (recorded.stop_reason != made.stop_reason)
    return fmt::format("stop_reason: found {}, need {}", stop_reason_name(made.stop_reason),
                       stop_reason_name(recorded.stop_reason));
  return recorded.text == made.text ? "" : "the tokens are equal, their text is not";
}

}  // namespace llm
