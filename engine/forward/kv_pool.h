#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "engine/forward/kv_groups.h"
#include "engine/model/hyper_parameters.h"
#include "engine/model/precision.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// Memory for what layers keep of sequences: a fixed number of pages, each holding every KV head of
/// kPagePositions neighbouring positions of a sequence in the layers of one group (KvGroups), or
/// the states of such layers. Sequences (SequenceState) take pages on demand, and may share those
/// whose tokens, from position 0 on, are equal: K and V depend on nothing else, so sharing is
/// exact.
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
  /// Stands for all tokens up to the end of a page. Never given twice, so a stale one finds
  /// nothing.
  using Prefix = std::uint64_t;
  static constexpr Prefix kNoPrefix = 0;

  /// What is kept of 256 positions, after those of another prefix.
  struct Published {
    Prefix prefix = kNoPrefix;
    /// Of each group; kNoPage: not kept. One is, at least.
    std::vector<Page> pages;
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

  /// A page for one holder, of unknown contents; nothing when all are held. Pages that are kept for
  /// their prefix alone are taken when no other is left, the longest unused first.
  std::optional<Page> acquire();
  void retain(Page page);
  void release(Page page);
  bool is_shared(Page page) const { return states_[page].holders > 1; }

  /// Makes `pages`, one for each group, findable as those that hold `tokens` after `parent`
  /// (kNoPrefix: the first). Where such a page was published before, it takes the other's place,
  /// and the caller's hold moves to it. @return what stands for them
  /// @pre tokens.size() == kPagePositions; one of the pages at least is not kNoPage, and none of
  /// them is published
  Prefix publish(Prefix parent, std::span<const TokenId> tokens, std::span<Page> pages);
  /// What is kept of `tokens` after `parent`, or nullptr; valid until the next acquire().
  const Published* find(Prefix parent, std::span<const TokenId> tokens) const;
  /// Holds a page that find() named.
  void share(Page page);
  bool is_published(Page page) const { return states_[page].is_published; }
  /// Before the contents of a page change.
  void unpublish(Page page);

 private:
  using Key = std::pair<Prefix, std::vector<TokenId>>;
  using Directory = std::map<Key, Published>;

  struct State {
    std::uint32_t holders = 0;
    bool is_published = false;
    std::uint64_t last_used = 0;
    Directory::iterator entry;  ///< valid when is_published
  };

  KvType type_{};
  KvGroups groups_;
  AlignedBuffer<std::byte> data_;
  std::vector<State> states_;
  std::vector<Page> free_;  ///< neither held nor published
  Directory published_;
  std::size_t in_use_ = 0;
  std::uint64_t shared_ = 0;
  Prefix last_prefix_ = kNoPrefix;
  std::uint64_t clock_ = 0;
};

}  // namespace llm
