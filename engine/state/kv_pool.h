#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "engine/model/hyper_parameters.h"
#include "engine/model/precision.h"
#include "engine/state/kv_groups.h"
#include "engine/state/prefix.h"

namespace llm {

/// Memory for what layers keep of sequences: a fixed number of pages, each holding every KV head of
/// kPagePositions neighbouring positions of a sequence in the layers of one group (KvGroups), or
/// the states of such layers. Sequences (SequenceState) take pages on demand, and may share those
/// whose tokens, from position 0 on, are equal: K and V depend on nothing else, so sharing is
/// exact, also of the leading positions of a page whose later ones are not equal or not there.
///
/// Layout of a page, for each (layer of the group, KV head): keys, then values, as KvLayout has
/// them.
///
/// Not thread-safe, but different rows of one page may be stored by different threads.
class KvPool {
 public:
  static constexpr std::size_t kPagePositions = KvGroups::kPagePositions;

  using Page = std::uint32_t;
  static constexpr Page kNoPage = UINT32_MAX;

  /// What is kept of the tokens after a prefix, in one group.
  struct Match {
    Page page = kNoPage;
    std::size_t n_positions = 0;  ///< leading ones of the page that hold those tokens
  };

  /// Errors: kResource with the memory needed. Cost: address space; a page becomes memory when it
  /// is first written.
  static Result<std::shared_ptr<KvPool>> create(const HyperParameters& config, std::size_t n_pages,
                                                KvType type) {
    return create(KvGroups(config, type), n_pages, type);
  }
  static Result<std::shared_ptr<KvPool>> create(KvGroups groups, std::size_t n_pages, KvType type);

  const KvGroups& groups() const { return groups_; }
  KvType type() const { return type_; }
  const KvLayout& layout(std::size_t layer) const { return groups_.memory(layer).layout; }
  std::size_t n_heads(std::size_t layer) const { return groups_.memory(layer).n_heads; }
  /// Bytes of a position's keys, or of its values, in a layer, without padding.
  std::size_t row_bytes(std::size_t layer) const {
    return n_heads(layer) * layout(layer).row_bytes();
  }
  std::size_t page_bytes() const { return groups_.page_bytes(); }

  std::size_t n_pages() const { return states_.size(); }
  /// Pages that sequences hold; a shared one counts once.
  std::size_t pages_in_use() const { return in_use_; }
  /// Times a sequence took over a page of equal tokens instead of computing it.
  std::uint64_t pages_shared() const { return shared_; }

  /// Offset, in a page of the layer's group, of the keys or values of (layer, KV head).
  std::size_t keys_offset(std::size_t layer, std::size_t head) const {
    return groups_.offset_of(layer) +
           head * (layout(layer).keys_bytes() + layout(layer).values_bytes());
  }
  std::size_t values_offset(std::size_t layer, std::size_t head) const {
    return keys_offset(layer, head) + layout(layer).keys_bytes();
  }
  std::byte* memory(Page page) { return data_.data() + page * page_bytes(); }
  const std::byte* memory(Page page) const { return data_.data() + page * page_bytes(); }

  /// Bytes of n positions in a group's layers as files have them, without padding: of each layer,
  /// for each position its keys, then its values, head by head (KvLayout::row_bytes()); of a group
  /// of states those of each layer.
  std::size_t raw_bytes(std::size_t group, std::size_t n) const;
  /// @pre out.size() is raw_bytes() of the positions [first, first + n) of the page
  void load_raw(Page page, std::size_t group, std::size_t first, std::size_t n,
                std::span<std::byte> out) const;
  /// Stores positions [first, first + n) from bytes that begin with those of `begin` and have
  /// n_all.
  void store_raw(Page page, std::size_t group, std::size_t begin, std::size_t n_all,
                 std::size_t first, std::size_t n, std::span<const std::byte> bytes);

  /// A page for one holder, of unknown contents; nothing when all are held. Where no other is left,
  /// one is evicted that is published or lent and not held: that whose tokens cost the least to
  /// compute again for the time that it has not been used.
  std::optional<Page> acquire();
  void retain(Page page);
  void release(Page page);
  bool is_shared(Page page) const { return states_[page].holders > 1; }

  /// Gives a page back whose contents the holder would like to have again. @return what proves
  /// later that they are still there. @pre held once, not published
  using Ticket = std::uint64_t;
  Ticket lend(Page page);
  bool is_lent(Page page, Ticket ticket) const { return states_[page].ticket == ticket; }
  /// The page is held again. @pre is_lent()
  void take_back(Page page);
  /// Its contents are not wanted any more. @pre is_lent()
  void give_up(Page page);

  /// Makes a page findable as the one that holds, in its first positions, `tokens` after `parent`,
  /// which ends where a page does; of a group of states: their state behind the last of them. Where
  /// a whole page of them is published, the caller's hold moves to that one; where a shorter one of
  /// keys and values is, `page` takes its place.
  /// @pre 0 < tokens.size() <= kPagePositions; what `page` is published for, if it is, begins
  /// `tokens`
  void publish(const Prefix& parent, std::size_t group, std::span<const TokenId> tokens,
               Page& page);
  /// How many tokens are computed again where a published page is evicted; kPagePositions until it
  /// is told.
  void set_worth(Page page, std::size_t n_tokens) {
    states_[page].worth = std::max<std::size_t>(n_tokens, 1);
  }
  /// The page that holds the most leading ones of `tokens` after `parent`; of a group of states the
  /// state behind the most of them. Valid until the next acquire().
  Match find(const Prefix& parent, std::size_t group, std::span<const TokenId> tokens) const;
  /// Remembers that a whole page was stored; asks whether one was, also if it is gone. Of many the
  /// oldest are forgotten.
  void remember(const Prefix& prefix);
  bool remembers(const Prefix& prefix) const { return known_.contains(prefix); }
  /// Holds a page that find() named.
  void share(Page page);
  /// Positions that `page` can be found for; 0: it is not published.
  std::size_t n_published(Page page) const;
  /// Before the contents of such positions change.
  void unpublish(Page page);

 private:
  struct Key {
    Prefix parent;
    std::size_t group;
    std::vector<TokenId> tokens;
  };
  struct Sought {
    const Prefix& parent;
    std::size_t group;
    std::span<const TokenId> tokens;
  };
  /// Those that begin alike lie side by side.
  struct Before {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      if (a.parent != b.parent) return a.parent < b.parent;
      if (a.group != b.group) return a.group < b.group;
      return std::ranges::lexicographical_compare(a.tokens, b.tokens);
    }
  };
  using Directory = std::map<Key, Page, Before>;

  struct State {
    std::uint32_t holders = 0;
    std::uint64_t last_used = 0;
    std::uint64_t worth = kPagePositions;           ///< of a published page
    Ticket ticket = 0;                              ///< of a lent page
    std::optional<Directory::iterator> entry = {};  ///< of a published page
  };

  bool is_of(Directory::const_iterator entry, const Sought& sought) const {
    return entry != published_.end() && entry->first.parent == sought.parent &&
           entry->first.group == sought.group;
  }

  KvType type_{};
  KvGroups groups_;
  AlignedBuffer<std::byte> data_;
  std::vector<State> states_;
  std::vector<Page> free_;  ///< neither held nor published
  Directory published_;
  std::set<Prefix> known_;  ///< what stands for each whole page that was published
  std::deque<Prefix> known_order_;
  std::size_t in_use_ = 0;
  std::uint64_t shared_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace llm
