#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "engine/model/hyper_parameters.h"
#include "quant/kernels/kv_layout.h"
#include "quant/numerics/contract.h"

namespace llm {

/// What a layer keeps of a sequence: keys and values of its positions, or a state of one size that
/// each token replaces (a recurrence, the tail of a convolution), or nothing of its own.
struct LayerMemory {
  KvLayout layout = {};                      ///< of a head's keys and values in a page
  std::size_t n_heads = 0;                   ///< heads of keys and values
  std::size_t window = 0;                    ///< AttentionSpec::window
  std::size_t state_bytes = 0;               ///< of a state, in place of keys and values
  std::optional<std::size_t> of_layer = {};  ///< it reads what that layer before it keeps

  bool is_state() const { return state_bytes > 0; }
  /// Of a page of positions, or of the state.
  std::size_t bytes() const;
};

/// What the layers of a model keep.
std::vector<LayerMemory> memory_of(const HyperParameters& config, KvType type);

/// Which layers keep what they keep in one page, and which pages a sequence needs.
///
/// Layers with equal windows whose pages have equal sizes go together, and so do states of one
/// size. All pages have one size, so that memory that one group gives back serves any other: it is
/// the one that leaves the least room unused, of those the largest. Of 15 layers with a window and
/// 3 without, it holds three layers: five groups and one. Where layers are unlike, a page holds as
/// many of each kind as find room in it. A model of like layers without windows is one group.
///
/// A sequence needs, in each group of keys and values, the pages that a query still to come can
/// look into; those before are given back. Of a group of states it needs one page.
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
  KvGroups() : groups_(1) {}
  /// @pre LayerMemory::of_layer is a layer before that keeps something
  explicit KvGroups(std::vector<LayerMemory> layers);
  KvGroups(const HyperParameters& config, KvType type) : KvGroups(memory_of(config, type)) {}

  std::size_t size() const { return groups_.size(); }
  std::size_t n_layers() const { return layers_.size(); }
  std::size_t page_bytes() const { return page_bytes_; }
  std::size_t window(std::size_t group) const { return groups_[group].window; }
  bool is_state(std::size_t group) const { return groups_[group].is_state; }
  bool has_states() const;

  /// Of a layer, or of that whose memory it reads.
  const LayerMemory& memory(std::size_t layer) const { return layers_[layer]; }
  std::size_t group_of(std::size_t layer) const { return places_[layer].group; }
  /// Layers that keep something in the group's pages, in order.
  const std::vector<std::size_t>& layers_of(std::size_t group) const {
    return groups_[group].layers;
  }
  /// Where in the page of its group the layer's bytes begin.
  std::size_t offset_of(std::size_t layer) const { return places_[layer].offset; }

  /// Pages, of all groups, that a sequence of `positions` holds at most while it is evaluated in
  /// passes of at most `pass` tokens. Never falls as `positions` grows.
  std::size_t most_pages(std::size_t positions, std::size_t pass) const;

 private:
  struct Group {
    std::size_t window = 0;
    bool is_state = false;
    std::vector<std::size_t> layers = {};
  };
  struct Place {
    std::size_t group;
    std::size_t offset;
  };

  std::size_t page_bytes_ = 0;
  std::vector<Group> groups_;
  std::vector<LayerMemory> layers_;
  std::vector<Place> places_;  ///< of each layer
};

}  // namespace llm
