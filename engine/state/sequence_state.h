#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/state/kv_pool.h"
#include "engine/state/kv_row.h"

namespace llm {

/// What the layers keep of one sequence: keys and values, per layer and KV head, rounded to the
/// pool's type when stored and always read back from here; and states. Holds pages of a KvPool, in
/// each of its groups of layers: page i has positions [256 i, 256 i + 256), and leading pages that
/// no query to come looks into are given back. Of a group of states there is one page, which is of
/// the position that the last pass ended at, and copies of positions in that pass. A sequence that
/// is cut elsewhere goes on from where it adopts a state, or from its beginning. Move-only; gives
/// all its pages back at the end.
class SequenceState {
 public:
  /// @param root  stands for what keys, values and states depend on besides the tokens; only
  /// sequences of equal roots share
  explicit SequenceState(std::shared_ptr<KvPool> pool, const Prefix& root = {})
      : pool_(std::move(pool)), root_(root), tables_(pool_->groups().size()) {}
  SequenceState(SequenceState&& other) noexcept { *this = std::move(other); }
  SequenceState& operator=(SequenceState&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(root_, other.root_);
    std::swap(tables_, other.tables_);
    std::swap(prefixes_, other.prefixes_);
    std::swap(states_at_, other.states_at_);
    std::swap(copies_, other.copies_);
    std::swap(found_at_, other.found_at_);
    return *this;
  }
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;
  ~SequenceState() {
    if (pool_) truncate(0);  // else moved from
  }

  const KvPool& pool() const { return *pool_; }
  /// Pages that it holds, of all groups.
  std::size_t n_pages() const;

  /// Makes positions [begin, end) ready to be stored, those before that they look at being stored
  /// or to be stored as well: gives back the pages that no query from KvGroups::kept_from(begin) on
  /// looks into, takes pages as needed, and copies a page that others hold too. Pages are given
  /// back only here and by adopt(), so that truncate() goes back to there at no cost. States are
  /// then of `end`: the pass makes them so. Those of position 0 are zeros.
  /// @pre reusable(begin) == begin, or nothing is stored: then the caller stores what is before it
  /// @return false when the pool has too few pages; what was ready still is.
  [[nodiscard]] bool reserve(std::size_t begin, std::size_t end);

  /// Whose states a pass copies, once it has computed them: those behind `position`, which it goes
  /// beyond. Where no page is free it copies none.
  enum class CopyFor : bool {
    kReturn,   ///< truncate() goes back to there, until the next pass or others need the page
    kPublish,  ///< publish() lets others find it
  };
  /// @pre has states; after reserve(begin, end), begin < position < end; in ascending order
  void copy_states(std::size_t position, CopyFor what);
  std::size_t n_copies() const { return copies_.size(); }
  std::size_t copy_position(std::size_t copy) const { return copies_[copy].position; }
  std::span<std::byte> copied_state(std::size_t copy, std::size_t layer);
  /// The pass is done: copies for a return are kept as long as nobody needs their pages.
  void lend_copies();

  /// The position from which the sequence can go on when it is cut to `n_positions`, all of them
  /// stored: that one; the one before it whose states were copied; or 0 where pages are gone that
  /// its window reaches into, or where states are of another.
  std::size_t reusable(std::size_t n_positions) const;
  /// Gives back the pages without a position below reusable(n_positions). @return that
  std::size_t truncate(std::size_t n_positions);

  /// Takes over published pages and states up to the last position behind `n_stored` from which
  /// `tokens` can go on: all that the next one's windows reach into is there, and its states. What
  /// this sequence has in their place is given back.
  /// @param tokens  this sequence is a prefix of them, of which n_stored are stored
  /// @return that position, or n_stored
  std::size_t adopt(std::span<const TokenId> tokens, std::size_t n_stored);

  /// Why what was stored once has to be computed again: pages were evicted, also if only those that
  /// a window reaches into; or no state is kept of a position.
  enum class Gone : std::uint8_t { kEvicted, kWindow, kState };
  static constexpr std::array<std::string_view, 3> kGoneNames = {"evicted", "window", "state"};
  struct Lost {
    std::size_t n_tokens = 0;
    Gone why = Gone::kEvicted;
  };
  /// What whole pages of `tokens` were stored once and are not found now. @pre the first n_stored
  /// are stored: adopt()'s result
  Lost lost(std::span<const TokenId> tokens, std::size_t n_stored) const;

  enum class Publish : bool { kWholePages, kAll };
  /// Lets others adopt the whole pages of `tokens`, which are this sequence from position 0 on and
  /// stored in every layer, and the states that were copied for it; or the last, partly filled one
  /// and the states as well.
  void publish(std::span<const TokenId> tokens, Publish what = Publish::kWholePages);

  /// What stands for the tokens before page i. @pre the pages before it are published
  const Prefix& prefix_before(std::size_t i) const { return i == 0 ? root_ : prefixes_[i - 1]; }

  /// Rounds and stores rows [first_row, first_row + key.size()) of K and V at `position`; row r is
  /// dim r % head_dim of KV head r / head_dim. Different rows may be stored by different workers.
  /// @pre key.size() == value.size(), the rows exist, the position was reserved; of q8 whole groups
  void store(std::size_t layer, std::size_t first_row, std::size_t position,
             std::span<const float> key, std::span<const float> value,
             const KvRounding& rounding = KvRounding::kDefinition);

  /// K and V of one position of a layer as they are stored, head by head KvLayout::row_bytes().
  /// @pre as row()
  void load_raw(std::size_t layer, std::size_t position, std::span<std::byte> key,
                std::span<std::byte> value) const;

  /// The state of a layer, of one position for all of it. Zeros before the first.
  /// @pre LayerMemory::is_state(), and positions were reserved
  std::span<std::byte> state(std::size_t layer);
  std::span<const std::byte> state(std::size_t layer) const;

  /// Keys and values of one position and head, for the definition; kernels use pages().
  /// @pre the position is ready, and its page not given back
  KvRow row(std::size_t layer, std::size_t head, std::size_t position) const;
  /// One element, read back.
  float key(std::size_t layer, std::size_t head, std::size_t position, std::size_t d) const {
    return row(layer, head, position).key(d);
  }
  float value(std::size_t layer, std::size_t head, std::size_t position, std::size_t d) const {
    return row(layer, head, position).value(d);
  }

  /// First byte of each page of the layer's group; keys and values of (layer, head) at KvPool's
  /// offsets. nullptr where the page was given back.
  std::span<const std::byte* const> pages(std::size_t layer) const {
    return tables_[pool_->groups().group_of(layer)].memory;
  }

 private:
  /// Pages of one group.
  struct Table {
    std::size_t first = 0;  ///< pages before it are gone
    std::vector<KvPool::Page> pages;
    std::vector<const std::byte*> memory;  ///< of each page

    std::size_t size() const { return pages.size(); }
  };

  /// States of a position.
  struct Copy {
    std::size_t position = 0;
    CopyFor what = CopyFor::kReturn;
    std::vector<KvPool::Page> pages = {};      ///< of each group; of others than states kNoPage
    std::vector<KvPool::Ticket> tickets = {};  ///< of each page that is lent; none: it is held
  };

  bool reserve(Table& table, std::size_t begin, std::size_t end);
  bool reserve_states(Table& table, std::size_t begin);
  /// Makes page i of the table one of which nobody else looks at positions from `from` on. What is
  /// published of them stays so if there is a page for the copy.
  bool make_writable(Table& table, std::size_t i, std::size_t from);
  /// Makes page i of the table one that this sequence alone holds, with its contents.
  bool own(Table& table, std::size_t i);
  /// Gives back the pages that no query from `position` on looks into.
  void drop_before(std::size_t position);
  /// Gives back the pages from `n_pages` on.
  void cut(std::size_t n_pages);
  /// The most leading ones of `tokens`, which are of one page, behind which all states are
  /// published; all of them where layers have none.
  std::size_t find_states(const Prefix& parent, std::span<const TokenId> tokens) const;
  /// @param prefixes  of whole pages of the tokens, its own among them
  /// @param found  of each page from its own published ones on, of each group
  void take_over(std::span<const TokenId> tokens, std::vector<Prefix> prefixes,
                 std::span<const std::vector<KvPool::Match>> found);
  /// @param i  the page that `tokens` are of
  void publish_page(Table& table, std::size_t group, std::size_t i,
                    std::span<const TokenId> tokens);
  /// @param tokens  all that the states are of  @param pages  of each group
  void publish_states(std::span<const TokenId> tokens, std::vector<KvPool::Page>& pages);
  /// Gives back all copies.
  void drop_copies();
  void drop_copy(Copy& copy);
  /// The copy to return to when the sequence is cut to `n_positions`.
  const Copy* copy_before(std::size_t n_positions) const;
  void return_to(const Copy& copy);
  bool reaches_windows(std::size_t n_positions) const;
  bool is_state(std::size_t group) const { return pool_->groups().is_state(group); }
  void put(Table& table, std::size_t i, KvPool::Page page);
  std::shared_ptr<KvPool> pool_;
  Prefix root_{};
  std::vector<Table> tables_;     ///< of each group; of states one page at most
  std::vector<Prefix> prefixes_;  ///< of the leading whole pages that are published
  std::size_t states_at_ = 0;     ///< the position that states are of
  std::vector<Copy> copies_;      ///< by position, all before states_at_
  std::size_t found_at_ = 0;      ///< the last position whose states can be found, as far as known
};

}  // namespace llm
