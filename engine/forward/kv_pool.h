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
#include "engine/model/hyper_parameters.h"
#include "engine/model/precision.h"
#include "quant/contract/contract.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// Memory for keys and values: a fixed number of pages, each holding every layer and KV head of
/// kPagePositions neighbouring positions of a sequence. Sequences (KvCache) take pages on demand,
/// and may share those whose tokens, from position 0 on, are equal: K and V depend on nothing else,
/// so sharing is exact.
///
/// Layout of a page, for each (layer, KV head): keys, then values, as KvLayout has them.
///
/// Not thread-safe, but different rows of one page may be stored by different threads.
class KvPool {
 public:
  /// One chunk of attention (docs/numerics.md): a chunk's keys lie in one page.
  static constexpr std::size_t kPagePositions = contract::kAttentionChunk;

  using Page = std::uint32_t;

  static constexpr std::size_t pages_for(std::size_t positions) {
    return (positions + kPagePositions - 1) / kPagePositions;
  }

  /// Errors: kResource with the memory needed. Cost: address space; a page becomes memory when it
  /// is first written.
  static Result<std::shared_ptr<KvPool>> create(const HyperParameters& config, std::size_t n_pages,
                                                KvType type);

  const KvLayout& layout() const { return layout_; }
  KvType type() const { return layout_.type; }
  std::size_t n_heads() const { return n_heads_; }
  std::size_t head_dim() const { return layout_.head_dim; }
  std::size_t page_bytes() const { return page_bytes_; }

  std::size_t n_pages() const { return states_.size(); }
  /// Pages that sequences hold; a shared one counts once.
  std::size_t pages_in_use() const { return in_use_; }
  /// Times a sequence took over a page of equal tokens instead of computing it.
  std::uint64_t pages_shared() const { return shared_; }

  /// Offset, in a page, of the keys or values of (layer, KV head).
  std::size_t keys_offset(std::size_t layer, std::size_t head) const {
    return (layer * n_heads_ + head) * (layout_.keys_bytes() + layout_.values_bytes());
  }
  std::size_t values_offset(std::size_t layer, std::size_t head) const {
    return keys_offset(layer, head) + layout_.keys_bytes();
  }
  std::byte* memory(Page page) { return data_.data() + page * page_bytes_; }
  const std::byte* memory(Page page) const { return data_.data() + page * page_bytes_; }

  /// A page for one holder, of unknown contents; nothing when all are held. Pages that are kept for
  /// their prefix alone are taken when no other is left, the longest unused first.
  std::optional<Page> acquire();
  void retain(Page page);
  void release(Page page);
  bool is_shared(Page page) const { return states_[page].holders > 1; }

  /// Makes `page` findable as the one that holds `tokens` after the pages that `parent` stands for
  /// (kNoPrefix: none). @return the page to hold instead: another if those tokens were published
  /// before. The caller's hold moves with it. @pre tokens.size() == kPagePositions
  Page publish(Page page, std::uint64_t parent, std::span<const TokenId> tokens);
  /// The page that holds `tokens` after `parent`, retained for the caller; or nothing.
  std::optional<Page> find(std::uint64_t parent, std::span<const TokenId> tokens);
  /// Stands for the tokens of a published page and of all pages before it.
  std::uint64_t prefix(Page page) const { return states_[page].prefix; }
  /// Before the contents of a page change.
  void unpublish(Page page);

  static constexpr std::uint64_t kNoPrefix = 0;

 private:
  using Key = std::pair<std::uint64_t, std::vector<TokenId>>;

  struct State {
    std::uint32_t holders = 0;
    std::uint64_t prefix = kNoPrefix;  ///< never given twice, so a stale parent finds nothing
    std::uint64_t last_used = 0;
    std::map<Key, Page>::iterator entry;  ///< valid when prefix != kNoPrefix
  };

  KvLayout layout_{};
  std::size_t n_heads_ = 0;
  std::size_t page_bytes_ = 0;
  AlignedBuffer<std::byte> data_;
  std::vector<State> states_;
  std::vector<Page> free_;  ///< neither held nor published
  std::map<Key, Page> published_;
  std::size_t in_use_ = 0;
  std::uint64_t shared_ = 0;
  std::uint64_t last_prefix_ = kNoPrefix;
  std::uint64_t clock_ = 0;
};

}  // namespace llm
