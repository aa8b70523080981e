#include "engine/forward/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace llm {
namespace {

constexpr std::size_t kPage = KvPool::kPagePositions;

}  // namespace

bool KvCache::reserve(std::size_t begin, std::size_t end) {
  LLM_CHECK(begin <= pages_.size() * kPage);
  for (std::size_t i = begin / kPage; i * kPage < end; ++i) {
    const bool is_new = i == pages_.size();
    if (!is_new && !pool_->is_shared(pages_[i])) {
      pool_->unpublish(pages_[i]);
      n_published_ = std::min(n_published_, i);
      continue;
    }
    const auto page = pool_->acquire();
    if (!page) return false;
    if (is_new) {
      pages_.push_back(*page);
      memory_.push_back(pool_->memory(*page));
      continue;
    }
    std::memcpy(pool_->memory(*page), memory_[i], pool_->page_bytes());
    pool_->release(pages_[i]);
    pages_[i] = *page;
    memory_[i] = pool_->memory(*page);
    n_published_ = std::min(n_published_, i);
  }
  return true;
}

void KvCache::truncate(std::size_t n_positions) {
  const std::size_t n_pages = KvPool::pages_for(n_positions);
  while (pages_.size() > n_pages) {
    pool_->release(pages_.back());
    pages_.pop_back();
    memory_.pop_back();
  }
  n_published_ = std::min(n_published_, n_positions / kPage);
}

std::uint64_t KvCache::prefix_before(std::size_t page) const {
  return page == 0 ? KvPool::kNoPrefix : pool_->prefix(pages_[page - 1]);
}

std::size_t KvCache::adopt(std::span<const TokenId> tokens) {
  for (; (n_published_ + 1) * kPage <= tokens.size(); ++n_published_) {
    const std::size_t i = n_published_;
    const auto page = pool_->find(prefix_before(i), tokens.subspan(i * kPage, kPage));
    if (!page) break;
    truncate(i * kPage);
    pages_.push_back(*page);
    memory_.push_back(pool_->memory(*page));
  }
  return n_published_ * kPage;
}

void KvCache::publish(std::span<const TokenId> tokens) {
  for (; (n_published_ + 1) * kPage <= tokens.size(); ++n_published_) {
    const std::size_t i = n_published_;
    pages_[i] = pool_->publish(pages_[i], prefix_before(i), tokens.subspan(i * kPage, kPage));
    memory_[i] = pool_->memory(pages_[i]);
  }
}

KvRow KvCache::row(std::size_t layer, std::size_t head, std::size_t position) const {
  LLM_CHECK(position < pages_.size() * kPage && head < pool_->n_heads());
  std::byte* page = pool_->memory(pages_[position / kPage]);
  return {pool_->layout(), page + pool_->keys_offset(layer, head),
          page + pool_->values_offset(layer, head), position % kPage};
}

void KvCache::store(std::size_t layer, std::size_t first_row, std::size_t position,
                    std::span<const float> key, std::span<const float> value,
                    const KvRounding& rounding) {
  const std::size_t head_dim = pool_->head_dim();
  LLM_CHECK(key.size() == value.size());
  for (std::size_t i = 0; i < key.size();) {
    const std::size_t d = (first_row + i) % head_dim;
    const std::size_t n = std::min(head_dim - d, key.size() - i);
    row(layer, (first_row + i) / head_dim, position)
        .store(d, key.subspan(i, n), value.subspan(i, n), rounding);
    i += n;
  }
}

void KvCache::load_raw(std::size_t layer, std::size_t position, std::span<std::byte> key,
                       std::span<std::byte> value) const {
  const std::size_t size = pool_->layout().row_bytes();
  LLM_CHECK(key.size() == value.size() && key.size() == pool_->n_heads() * size);
  for (std::size_t head = 0; head < pool_->n_heads(); ++head) {
    row(layer, head, position)
        .load_raw(key.subspan(head * size, size), value.subspan(head * size, size));
  }
}

void KvCache::store_raw(std::size_t layer, std::size_t position, std::span<const std::byte> key,
                        std::span<const std::byte> value) {
  const std::size_t size = pool_->layout().row_bytes();
  LLM_CHECK(key.size() == value.size() && key.size() == pool_->n_heads() * size);
  for (std::size_t head = 0; head < pool_->n_heads(); ++head) {
    row(layer, head, position)
        .store_raw(key.subspan(head * size, size), value.subspan(head * size, size));
  }
}

}  // namespace llm
