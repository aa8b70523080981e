#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/forward/kv_pool.h"
#include "engine/forward/kv_row.h"

namespace llm {

/// Keys and values of every position of one sequence, per layer and KV head, rounded to the pool's
/// type when stored and always read back from here. Holds pages of a KvPool: page i has positions
/// [256 i, 256 i + 256). Move-only; gives its pages back at the end.
class KvCache {
 public:
  explicit KvCache(std::shared_ptr<KvPool> pool) : pool_(std::move(pool)) {}
  KvCache(KvCache&& other) noexcept { *this = std::move(other); }
  KvCache& operator=(KvCache&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(pages_, other.pages_);
    std::swap(memory_, other.memory_);
    std::swap(n_published_, other.n_published_);
    return *this;
  }
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;
  ~KvCache() { truncate(0); }

  const KvPool& pool() const { return *pool_; }
  std::size_t n_pages() const { return pages_.size(); }

  /// Makes positions [begin, end) ready to be stored: takes pages as needed, and copies a page that
  /// others hold too. @pre begin <= the positions that are ready. @return false when the pool has
  /// too few pages; what was ready still is.
  [[nodiscard]] bool reserve(std::size_t begin, std::size_t end);
  /// Gives back the pages without a position below n_positions.
  void truncate(std::size_t n_positions);

  /// Takes over published pages that go on where its own published ones end, as far as they hold
  /// `tokens`, of which this sequence is a prefix; a page of its own that is not whole yet gives
  /// way.
  /// @return positions in its leading published pages, a multiple of the page
  std::size_t adopt(std::span<const TokenId> tokens);
  /// Lets others adopt the whole pages of `tokens`, which are this sequence from position 0 on and
  /// stored in every layer.
  void publish(std::span<const TokenId> tokens);

  /// Rounds and stores rows [first_row, first_row + key.size()) of K and V at `position`; row r is
  /// dim r % head_dim of KV head r / head_dim. Different rows may be stored by different workers.
  /// @pre key.size() == value.size(), the rows exist, the position was reserved; of q8 whole groups
  void store(std::size_t layer, std::size_t first_row, std::size_t position,
             std::span<const float> key, std::span<const float> value,
             const KvRounding& rounding = KvRounding::kDefinition);

  /// K and V of one position of a layer as they are stored, for files: head by head
  /// KvLayout::row_bytes(). @pre the position was reserved
  void load_raw(std::size_t layer, std::size_t position, std::span<std::byte> key,
                std::span<std::byte> value) const;
  void store_raw(std::size_t layer, std::size_t position, std::span<const std::byte> key,
                 std::span<const std::byte> value);

  /// Keys and values of one position and head, for the definition; kernels use pages().
  KvRow row(std::size_t layer, std::size_t head, std::size_t position) const;
  /// One element, read back.
  float key(std::size_t layer, std::size_t head, std::size_t position, std::size_t d) const {
    return row(layer, head, position).key(d);
  }
  float value(std::size_t layer, std::size_t head, std::size_t position, std::size_t d) const {
    return row(layer, head, position).value(d);
  }

  /// First byte of each page; keys and values of (layer, head) at KvPool's offsets.
  const std::byte* const* pages() const { return memory_.data(); }

 private:
  /// What stands for the tokens of all pages before one. @pre they are published
  std::uint64_t prefix_before(std::size_t page) const;

  std::shared_ptr<KvPool> pool_;
  std::vector<KvPool::Page> pages_;
  std::vector<const std::byte*> memory_;  ///< of each page
  std::size_t n_published_ = 0;           ///< leading pages that others may adopt
};

}  // namespace llm
