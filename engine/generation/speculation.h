#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "engine/generation/proposer.h"
#include "engine/generation/speculation_policy.h"
#include "engine/generation/speculative_session.h"

namespace llm {

/// Where proposals come from, as options of programs say.
enum class SpeculateKind {
  kAuto,  ///< kMtp where the model has such a block, else kOff
  kOff,
  kNgram,  ///< NgramProposer
  kMtp,    ///< MtpProposer
};

/// A proposer, and what was learned of its proposals and their price. Given to each generation in
/// turn (GenerateOptions::speculation); never changes a result (docs/speculation.md).
class Speculation {
 public:
  /// @param length  tokens to propose each time, at most SpeculationPolicy::kMost; nothing: as many
  ///     as pay
  explicit Speculation(std::unique_ptr<Proposer> proposer, std::optional<std::size_t> length = {})
      : proposer_(std::move(proposer)), policy_(length) {}

  /// At most `most` tokens that may follow request.text, and are worth a try.
  std::vector<TokenId> propose(const ProposalRequest& request, std::size_t most);
  /// What came of the pass that was last asked for.
  void note(const LookaheadPass& pass);

  Proposer& source() { return *proposer_; }
  std::string_view proposer() const { return proposer_->name(); }
  const SpeculationPolicy& policy() const { return policy_; }

 private:
  std::unique_ptr<Proposer> proposer_;
  SpeculationPolicy policy_;
  std::size_t grade_ = 0;  ///< of the last proposal
  double seconds_ = 0;     ///< that it took
};

}  // namespace llm
