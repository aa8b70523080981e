#pragma once

#include <memory>

#include "base/result.h"
#include "engine/generation/proposer.h"
#include "engine/session.h"

namespace llm {

/// Whether the ids of two vocabularies mean the same. Errors: kUsage naming what differs: the
/// numbers of tokens, or the first token with both spellings.
Status check_same_vocabulary(const Tokenizer& draft, const Tokenizer& model);

/// Proposes what a smaller model would write, drawn as the text itself is drawn: with the same
/// random numbers, two models that are nearly of one mind nearly always draw the same token
/// (Leviathan et al., "Fast inference from transformers via speculative decoding",
/// arXiv:2211.17192, without its rejection sampling). All its proposals are of grade 0.
class DraftProposer final : public Proposer {
 public:
  /// @param draft  a session of the smaller model that nobody else moves
  /// @pre check_same_vocabulary()
  explicit DraftProposer(std::unique_ptr<Session> draft) : draft_(std::move(draft)) {}

  std::string_view name() const override { return "draft"; }
  /// Ends where the draft ends the text, fails, is interrupted or has no position left. Behind many
  /// new tokens, as those of a prompt, it evaluates these and proposes nothing yet.
  /// Cost: the draft's prefill of what is new in the text, and a pass for each token but the first.
  Proposal propose(const ProposalRequest& request, const Worth& worth) override;

 private:
  Result<std::span<const float>> follow(const ProposalRequest& request);

  std::unique_ptr<Session> draft_;
  std::vector<TokenId> held_;  ///< what draft_ has evaluated
};

}  // namespace llm
