#include "engine/generation/draft_proposer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/shown_text.h"

namespace llm {
namespace {

/// With more new tokens than that, they are all that is evaluated: the time that a proposal takes
/// is then that of its own tokens, and the next token's comes soon enough.
constexpr std::size_t kMostBehind = 4;

Error differs(std::string message) {
  return Error{.code = ErrorCode::kUsage,
               .field = "vocabulary",
               .message = std::move(message),
               .hint = "a draft needs the vocabulary of the model; take one of the same family"};
}

}  // namespace

Status check_same_vocabulary(const Tokenizer& draft, const Tokenizer& model) {
  if (draft.size() != model.size()) {
    return differs(fmt::format("found {} tokens in the draft, need {}, as the model has",
                               draft.size(), model.size()));
  }
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (draft.spelling(id) == model.spelling(id) && draft.kind(id) == model.kind(id)) continue;
    return differs(fmt::format(
        "found token {} as {} of kind {} in the draft, need {} of kind {}, as the model has it", id,
        llm::quoted(draft.spelling(id)), static_cast<int>(draft.kind(id)),
        llm::quoted(model.spelling(id)), static_cast<int>(model.kind(id))));
  }
  return Ok{};
}

/// Evaluates what of the text the draft has not seen, and its last token in any case.
/// @return the row of logits behind it; none when interrupted
Result<std::span<const float>> DraftProposer::follow(const ProposalRequest& request) {
  const auto text = request.text;
  const auto differs = std::ranges::mismatch(held_, text).in1;
  const auto shared = static_cast<std::size_t>(differs - held_.begin());
  held_.resize(std::min(shared, text.size() - 1));
  draft_->truncate(held_.size());
  std::span<const float> logits;
  while (held_.size() < text.size()) {
    if (request.interrupted && request.interrupted()) return std::span<const float>{};
    const auto part =
        text.subspan(held_.size()).first(std::min(draft_->batch(), text.size() - held_.size()));
    const bool is_last = held_.size() + part.size() == text.size();
    LLM_TRY(logits, draft_->evaluate(part, is_last ? LogitRows::kLast : LogitRows::kNone));
    held_.insert(held_.end(), part.begin(), part.end());
  }
  return logits;
}

Proposal DraftProposer::propose(const ProposalRequest& request, const Worth& worth) {
  Proposal proposal;
  const std::size_t wanted = worth(proposal.grade);
  if (wanted == 0 || request.text.size() > draft_->context()) return proposal;
  const std::size_t before = held_.size();
  auto logits = follow(request);
  if (request.text.size() > before + kMostBehind) return proposal;
  std::vector<TokenId> past(request.text.begin(), request.text.end());
  while (logits.ok() && !logits->empty()) {
    const auto id = request.draw(*logits, past);
    if (!id) break;
    proposal.tokens.push_back(*id);
    past.push_back(*id);
    if (proposal.tokens.size() == wanted || held_.size() == draft_->context()) break;
    logits = draft_->evaluate({&*id, 1}, LogitRows::kLast);
    if (logits.ok()) held_.push_back(*id);
  }
  return proposal;
}

}  // namespace llm
