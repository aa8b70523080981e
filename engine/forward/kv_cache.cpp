#include "engine/forward/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "quant/formats/half.h"

namespace llm {
namespace {

constexpr std::size_t kPage = KvPool::kPagePositions;
constexpr std::size_t kLanes = KvPool::kLanes;

template <typename T>
float load_element(const std::byte* base, std::size_t index) {
  T x;
  std::memcpy(&x, base + index * sizeof(T), sizeof(T));
  if constexpr (sizeof(T) == 2) {
    return f16_to_f32(x);
  } else {
    return x;
  }
}

float load_element(const std::byte* base, std::size_t index, KvType type) {
  return type == KvType::kF16 ? load_element<std::uint16_t>(base, index)
                              : load_element<float>(base, index);
}

/// Index of an element among the keys of its (layer, KV head) in a page.
std::size_t key_index(std::size_t row, std::size_t d, std::size_t head_dim) {
  return (row / kLanes * head_dim + d) * kLanes + row % kLanes;
}

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

std::size_t KvCache::adopt(std::span<const TokenId> tokens) {
  LLM_CHECK(pages_.empty());
  std::uint64_t prefix = KvPool::kNoPrefix;
  while ((pages_.size() + 1) * kPage <= tokens.size()) {
    const auto page = pool_->find(prefix, tokens.subspan(pages_.size() * kPage, kPage));
    if (!page) break;
    prefix = pool_->prefix(*page);
    pages_.push_back(*page);
    memory_.push_back(pool_->memory(*page));
  }
  n_published_ = pages_.size();
  return n_published_ * kPage;
}

void KvCache::publish(std::span<const TokenId> tokens) {
  for (; (n_published_ + 1) * kPage <= tokens.size(); ++n_published_) {
    const std::size_t i = n_published_;
    const auto parent = i == 0 ? KvPool::kNoPrefix : pool_->prefix(pages_[i - 1]);
    pages_[i] = pool_->publish(pages_[i], parent, tokens.subspan(i * kPage, kPage));
    memory_[i] = pool_->memory(pages_[i]);
  }
}

template <typename T>
void KvCache::scatter(std::size_t layer, std::size_t first_row, std::size_t position,
                      std::span<const T> key, std::span<const T> value) {
  const std::size_t head_dim = pool_->head_dim();
  LLM_CHECK(position < pages_.size() * kPage && key.size() == value.size());
  LLM_CHECK(first_row + key.size() <= pool_->n_heads() * head_dim);
  LLM_CHECK(sizeof(T) == pool_->element_bytes());
  std::byte* page = pool_->memory(pages_[position / kPage]);
  const std::size_t row = position % kPage;
  for (std::size_t i = 0; i < key.size();) {
    const std::size_t head = (first_row + i) / head_dim;
    const std::size_t d = (first_row + i) % head_dim;
    const std::size_t n = std::min(head_dim - d, key.size() - i);
    std::byte* keys = page + pool_->keys_offset(layer, head);
    for (std::size_t j = 0; j < n; ++j) {
      std::memcpy(keys + key_index(row, d + j, head_dim) * sizeof(T), &key[i + j], sizeof(T));
    }
    std::byte* values = page + pool_->values_offset(layer, head);
    std::memcpy(values + (row * head_dim + d) * sizeof(T), &value[i], n * sizeof(T));
    i += n;
  }
}

void KvCache::store(std::size_t layer, std::size_t first_row, std::size_t position,
                    std::span<const float> key, std::span<const float> value) {
  if (pool_->type() == KvType::kF32) return scatter(layer, first_row, position, key, value);
  std::vector<std::uint16_t> half(key.size() + value.size());
  std::transform(key.begin(), key.end(), half.begin(), f32_to_f16);
  std::transform(value.begin(), value.end(), half.begin() + static_cast<std::ptrdiff_t>(key.size()),
                 f32_to_f16);
  const std::span<const std::uint16_t> rounded = half;
  store_half(layer, first_row, position, rounded.first(key.size()), rounded.last(value.size()));
}

void KvCache::store_half(std::size_t layer, std::size_t first_row, std::size_t position,
                         std::span<const std::uint16_t> key, std::span<const std::uint16_t> value) {
  scatter(layer, first_row, position, key, value);
}

void KvCache::load_raw(std::size_t layer, std::size_t position, std::span<std::byte> key,
                       std::span<std::byte> value) const {
  const std::size_t head_dim = pool_->head_dim();
  const std::size_t size = pool_->element_bytes();
  LLM_CHECK(position < pages_.size() * kPage && key.size() == value.size());
  LLM_CHECK(key.size() == pool_->n_heads() * head_dim * size);
  const std::size_t row = position % kPage;
  for (std::size_t head = 0; head < pool_->n_heads(); ++head) {
    const std::byte* keys = memory_[position / kPage] + pool_->keys_offset(layer, head);
    for (std::size_t d = 0; d < head_dim; ++d) {
      std::memcpy(&key[(head * head_dim + d) * size], keys + key_index(row, d, head_dim) * size,
                  size);
    }
    const std::byte* values = memory_[position / kPage] + pool_->values_offset(layer, head);
    std::memcpy(&value[head * head_dim * size], values + row * head_dim * size, head_dim * size);
  }
}

void KvCache::store_raw(std::size_t layer, std::size_t position, std::span<const std::byte> key,
                        std::span<const std::byte> value) {
  const auto store_as = [&]<typename T>(T) {
    std::vector<T> elements((key.size() + value.size()) / sizeof(T));
    std::memcpy(elements.data(), key.data(), key.size());
    std::memcpy(elements.data() + key.size() / sizeof(T), value.data(), value.size());
    const std::span<const T> rows = elements;
    scatter(layer, 0, position, rows.first(rows.size() / 2), rows.last(rows.size() / 2));
  };
  LLM_CHECK(key.size() == value.size() && key.size() % pool_->element_bytes() == 0);
  if (pool_->type() == KvType::kF16) return store_as(std::uint16_t{});
  store_as(float{});
}

float KvCache::key(std::size_t layer, std::size_t head, std::size_t position, std::size_t d) const {
  return load_element(memory_[position / kPage] + pool_->keys_offset(layer, head),
                      key_index(position % kPage, d, pool_->head_dim()), pool_->type());
}

float KvCache::value(std::size_t layer, std::size_t head, std::size_t position,
                     std::size_t d) const {
  return load_element(memory_[position / kPage] + pool_->values_offset(layer, head),
                      position % kPage * pool_->head_dim() + d, pool_->type());
}

}  // namespace llm
