#include "engine/generation/speculation.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace llm {

std::vector<TokenId> Speculation::propose(const ProposalRequest& request, std::size_t most) {
  most = std::min(most, SpeculationPolicy::kMost);
  const auto started = std::chrono::steady_clock::now();
  Proposal proposal = proposer_->propose(
      request, [&](std::size_t grade) { return std::min(most, policy_.length(grade)); });
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - started;
  proposal.tokens.resize(std::min(proposal.tokens.size(), most));
  grade_ = proposal.grade;
  seconds_ = time.count();
  return std::move(proposal.tokens);
}

void Speculation::note(const LookaheadPass& pass) {
  policy_.note({.grade = grade_,
                .proposed = pass.proposed,
                .accepted = pass.accepted,
                .refuted = pass.refuted,
                .pass_seconds = pass.seconds,
                .proposal_seconds = seconds_});
}

}  // namespace llm
