#include "validate/provenance/replayed_text.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "engine/generation/draw.h"

namespace llm {

Result<std::unique_ptr<ReplayedText>> ReplayedText::create(ReceiptModel& model,
                                                           const Receipt& receipt,
                                                           std::size_t n_kept) {
  LLM_TRY(auto terms, ReceiptTerms::of(model, receipt));
  return std::unique_ptr<ReplayedText>(
      new ReplayedText(model.model(), receipt, std::move(terms), n_kept));
}

ReplayedText::ReplayedText(const Model& model, const Receipt& receipt, ReceiptTerms terms,
                           std::size_t n_kept)
    : receipt_(receipt),
      tokenizer_(model.tokenizer()),
      terms_(std::move(terms)),
      n_vocab_(model.config().n_vocab),
      first_drawn_(receipt.prompt_ids.size() - 1),
      tokens_(receipt.prompt_ids),
      n_kept_(n_kept),
      text_(tokenizer_, terms_.options, nobody_) {
  tokens_.insert(tokens_.end(), receipt.ids.begin(), receipt.ids.end());
  kept_.n_vocab = n_vocab_;
  if (terms_.options.grammar != nullptr)
    kept_grammar_.emplace(terms_.options.grammar, terms_.options.stop_tokens);
}

Segment ReplayedText::next(Sequence& sequence, std::size_t most) const {
  const std::size_t at = sequence.position();
  const bool wants_rows = at >= first_drawn_;
  const std::size_t end = wants_rows ? n_positions() : std::min(n_positions(), first_drawn_);
  return {&sequence, std::span(tokens_).subspan(at, std::min(most, end - at)),
          wants_rows ? LogitRows::kAll : LogitRows::kNone};
}

Status ReplayedText::draw(std::span<const float> rows, std::size_t at) {
  for (std::size_t i = 0; i < rows.size() / n_vocab_; ++i) {
    const std::size_t which = at + i - first_drawn_;
    const auto row = rows.subspan(i * n_vocab_, n_vocab_);
    const bool is_last = which == receipt_.ids.size();
    if (!is_last && which < n_kept_) LLM_RETURN_IF_ERROR(keep(row, receipt_.ids[which]));
    if (differs_) continue;
    const auto past = std::span(tokens_).first(at + i + 1);
    LLM_RETURN_IF_ERROR(text_.draw(row, past, past.size()));
    const auto id = text_.drawn();
    if (is_last || !id) continue;  // what would come next; or the text had ended before
    if (*id != receipt_.ids[which] || ends_text(tokenizer_, *id, terms_.options)) {
      differs_ = Difference{which, *id};
    } else {
      LLM_RETURN_IF_ERROR(text_.advance(drawn_ids_, 0));
    }
  }
  return Ok{};
}

/// Keeps the row that `id` was drawn from, as far as the receipt's ids are in the grammar.
Status ReplayedText::keep(std::span<const float> row, TokenId id) {
  if (left_grammar_) return Ok{};
  kept_.logits.insert(kept_.logits.end(), row.begin(), row.end());
  if (!kept_grammar_) return Ok{};
  LLM_TRY(const auto mask, kept_grammar_->mask());
  kept_.masks.insert(kept_.masks.end(), mask.begin(), mask.end());
  left_grammar_ = !allows(mask, id) || !kept_grammar_->accept(id).ok();
  return Ok{};
}

bool ReplayedText::logits_equal() const { return hash_.hex() == receipt_.drawn_logits_sha256; }

std::string ReplayedText::describe_logits(bool equal, bool drawn) const {
  if (equal) return fmt::format("SHA-256 of {} positions", n_positions());
  std::string words = fmt::format("drawn from: found {}, need {}, the receipt's", hash_.hex(),
                                  receipt_.drawn_logits_sha256);
  if (drawn)
    words += "; but the settings give its tokens: the hash or an id of the prompt is not the run's";
  return words;
}

std::string ReplayedText::describe_tokens(bool logits) const {
  if (!differs_) return fmt::format("{} drawn again", receipt_.ids.size());
  const std::string place = fmt::format("token {}: the receipt has {}, sampled is {}", differs_->at,
                                        shown_token(tokenizer_, receipt_.ids[differs_->at]),
                                        shown_token(tokenizer_, differs_->drawn));
  if (!logits) return place + "; the logits are not the run's either: a token was changed";
  if (differs_->at >= kept_.size()) return place + "; the logits are the run's: a setting is not";
  const auto others = settings_that_draw(receipt_, kept_, tokenizer_, terms_.style.get());
  if (others.empty())
    return place + "; the logits are the run's: the seed is not, or more than one setting";
  return fmt::format("{}; the logits are the run's: a setting is not; {} would give its tokens",
                     place, fmt::join(others, " or "));
}

std::vector<CheckResult> ReplayedText::checks() {
  const bool logits = logits_equal();
  const bool drawn = !differs_;
  std::vector<CheckResult> out;
  if (auto prompt = check_prompt(receipt_, tokenizer_, terms_.style.get()))
    out.push_back(*std::move(prompt));
  out.push_back({"logits", logits, describe_logits(logits, drawn)});
  out.push_back({"tokens", drawn, describe_tokens(logits)});
  if (drawn) out.push_back(check_text(receipt_, tokenizer_, terms_.options, text_));
  return out;
}

}  // namespace llm
