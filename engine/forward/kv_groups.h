#pragma once

#include <cstddef>
#include <vector>

#include "engine/model/hyper_parameters.h"
#include "quant/contract/contract.h"

namespace llm {

/// Which layers keep their keys and values in one page, and which pages a sequence needs.
///
/// Layers with equal windows go together, and all groups have as many layers, so that all pages
/// have one size: of 15 layers with a window and 3 without, five groups and one, three layers each.
/// A model without windows is one group. A sequence needs, in each group, the pages that a query
/// still to come can look into; those before are given back.
class KvGroups {
 public:
  /// One chunk of attention (docs/numerics.md): a chunk's keys lie in one page.
  static constexpr std::size_t kPagePositions = contract::kAttentionChunk;

  static constexpr std::size_t pages_for(std::size_t positions) {
    return (positions + kPagePositions - 1) / kPagePositions;
  }
  /// The first page with a key that a query at `position` or behind it looks at. @param window
  /// positions that a query sees, itself the last; 0: all before it
  static constexpr std::size_t first_page(std::size_t window, std::size_t position) {
    return window == 0 || position < window ? 0 : (position + 1 - window) / kPagePositions;
  }

  /// So far back a sequence goes without computing anything anew: behind the guesses of a draft
  /// model, which are evaluated one by one (SpeculationPolicy::kMost).
  static constexpr std::size_t kSlack = 32;
  /// What positions from here on look at is kept for a pass that begins at `position`.
  static constexpr std::size_t kept_from(std::size_t position) {
    return position < kSlack ? 0 : position - kSlack;
  }

  /// One group without a window.
  KvGroups() : windows_{0} {}
  explicit KvGroups(const HyperParameters& config);

  std::size_t size() const { return windows_.size(); }
  std::size_t layers_per_page() const { return layers_per_page_; }
  std::size_t window(std::size_t group) const { return windows_[group]; }
  std::size_t group_of(std::size_t layer) const { return places_[layer].group; }
  /// Among the layers of its group.
  std::size_t index_of(std::size_t layer) const { return places_[layer].index; }

  /// Pages, of all groups, that a sequence of `positions` holds at most while it is evaluated in
  /// passes of at most `pass` tokens. Never falls as `positions` grows.
  std::size_t most_pages(std::size_t positions, std::size_t pass) const;

 private:
  struct Place {
    std::size_t group;
    std::size_t index;
  };

  std::size_t layers_per_page_ = 1;
  std::vector<std::size_t> windows_;  ///< of each group
  std::vector<Place> places_;         ///< of each layer
};

}  // namespace llm
