#pragma once

#include <cstdint>
#include <unordered_map>

#include "engine/generation/proposer.h"

namespace llm {

/// Proposes what followed the last tokens when they last stood in the text (Saxena, "Prompt lookup
/// decoding", 2023): of earlier places that end with the same tokens the one where most are the
/// same, the latest of equals. The grade is by how many. What follows a place that the text has not
/// yet gone beyond repeats itself.
class NgramProposer final : public Proposer {
 public:
  static constexpr std::size_t kLeast = 2;    ///< tokens that must be the same
  static constexpr std::size_t kMost = 32;    ///< more are not looked at
  static constexpr std::size_t kPlaces = 64;  ///< the latest ones alone are looked at

  std::string_view name() const override { return "ngram"; }
  /// Cost: comparing the text with the last one; new tokens are indexed once. 12 bytes a token and
  /// an entry for each different pair.
  Proposal propose(const ProposalRequest& request, const Worth& worth) override;

  /// The grade of a place with `n_equal` tokens the same.
  static std::size_t grade_of(std::size_t n_equal);

 private:
  struct Place {
    std::size_t end = 0;  ///< of the equal tokens
    std::size_t n_equal = 0;
  };
  void follow(std::span<const TokenId> text);
  Place best_place() const;

  std::vector<TokenId> text_;
  /// For each position the one before it that ends with the same two tokens, plus one; 0: none.
  std::vector<std::uint32_t> previous_;
  std::unordered_map<std::uint64_t, std::uint32_t> latest_;  ///< pair to position plus one
};

}  // namespace llm
