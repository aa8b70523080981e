#include "engine/generation/ngram_proposer.h"

#include <algorithm>

namespace llm {
namespace {

std::uint64_t pair_of(TokenId first, TokenId second) {
  return std::uint64_t{static_cast<std::uint32_t>(first)} << 32 |
         static_cast<std::uint32_t>(second);
}

}  // namespace

std::size_t NgramProposer::grade_of(std::size_t n_equal) {
  constexpr std::size_t kSmallest[kGrades] = {kLeast, 3, 4, 5, 7, 10, 16, kMost};
  std::size_t grade = kGrades - 1;
  while (grade > 0 && n_equal < kSmallest[grade]) --grade;
  return grade;
}

/// Indexes what of `text` is new; all of it when it does not go on with the last one.
void NgramProposer::follow(std::span<const TokenId> text) {
  if (text.size() < text_.size() || !std::ranges::equal(text_, text.first(text_.size()))) {
    text_.clear();
    previous_.clear();
    latest_.clear();
  }
  for (std::size_t i = text_.size(); i < text.size(); ++i) {
    text_.push_back(text[i]);
    std::uint32_t before = 0;
    if (i > 0) {
      std::uint32_t& latest = latest_[pair_of(text[i - 1], text[i])];
      before = latest;
      latest = static_cast<std::uint32_t>(i + 1);
    }
    previous_.push_back(before);
  }
}

NgramProposer::Place NgramProposer::best_place() const {
  Place best;
  std::size_t n_places = 0;
  for (std::size_t end = previous_.back(); end > 0 && n_places < kPlaces; ++n_places) {
    std::size_t n_equal = 0;
    while (n_equal < std::min(kMost, end) &&
           text_[end - 1 - n_equal] == text_[text_.size() - 1 - n_equal]) {
      ++n_equal;
    }
    if (n_equal > best.n_equal) best = {end, n_equal};
    end = previous_[end - 1];
  }
  return best;
}

Proposal NgramProposer::propose(const ProposalRequest& request, const Worth& worth) {
  follow(request.text);
  const Place place = best_place();
  if (place.n_equal < kLeast) return {};
  Proposal proposal{.tokens = {}, .grade = grade_of(place.n_equal)};
  const std::size_t wanted = worth(proposal.grade);
  for (std::size_t at = place.end; proposal.tokens.size() < wanted; ++at) {
    const bool known = at < text_.size();
    proposal.tokens.push_back(known ? text_[at] : proposal.tokens[at - text_.size()]);
  }
  return proposal;
}

}  // namespace llm
