#include "engine/forward/kv_pool.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/checked_size.h"

namespace llm {

Result<std::shared_ptr<KvPool>> KvPool::create(const HyperParameters& config, std::size_t n_pages,
                                               KvType type) {
  auto pool = std::make_shared<KvPool>();
  pool->layout_ = {type, config.head_dim};
  pool->n_heads_ = config.n_kv_heads;
  const CheckedSize page = CheckedSize(pool->layout_.keys_bytes() + pool->layout_.values_bytes()) *
                           config.n_kv_heads * config.n_layers;
  const auto bytes = (page * n_pages).value();
  if (!bytes || n_pages > UINT32_MAX) return detail::out_of_memory(UINT64_MAX, "KV cache");
  pool->page_bytes_ = static_cast<std::size_t>(*page.value());
  LLM_TRY(pool->data_, AlignedBuffer<std::byte>::allocate(*bytes, "KV cache"));
  pool->states_.resize(n_pages);
  pool->free_.resize(n_pages);
  // The last is taken first: pages are used in ascending order.
  std::iota(pool->free_.rbegin(), pool->free_.rend(), Page{0});
  return pool;
}

std::optional<KvPool::Page> KvPool::acquire() {
  if (free_.empty()) {
    // Linear, but once per 256 tokens and only when the pool is full of old prefixes.
    const State* oldest = nullptr;
    for (const State& state : states_) {
      if (state.holders > 0) continue;
      if (oldest == nullptr || state.last_used < oldest->last_used) oldest = &state;
    }
    if (oldest == nullptr) return std::nullopt;
    unpublish(static_cast<Page>(oldest - states_.data()));
  }
  const Page page = free_.back();
  free_.pop_back();
  states_[page].holders = 1;
  ++in_use_;
  return page;
}

void KvPool::retain(Page page) {
  if (states_[page].holders++ == 0) ++in_use_;
}

void KvPool::release(Page page) {
  State& state = states_[page];
  LLM_CHECK(state.holders > 0);
  if (--state.holders > 0) return;
  --in_use_;
  state.last_used = ++clock_;
  if (state.prefix == kNoPrefix) free_.push_back(page);
}

KvPool::Page KvPool::publish(Page page, std::uint64_t parent, std::span<const TokenId> tokens) {
  LLM_CHECK(tokens.size() == kPagePositions && states_[page].prefix == kNoPrefix);
  const auto [entry, is_new] =
      published_.try_emplace({parent, std::vector<TokenId>(tokens.begin(), tokens.end())}, page);
  if (!is_new) {
    retain(entry->second);
    release(page);
    return entry->second;
  }
  states_[page].prefix = ++last_prefix_;
  states_[page].entry = entry;
  return page;
}

std::optional<KvPool::Page> KvPool::find(std::uint64_t parent, std::span<const TokenId> tokens) {
  const auto entry = published_.find({parent, std::vector<TokenId>(tokens.begin(), tokens.end())});
  if (entry == published_.end()) return std::nullopt;
  retain(entry->second);
  ++shared_;
  return entry->second;
}

void KvPool::unpublish(Page page) {
  State& state = states_[page];
  if (state.prefix == kNoPrefix) return;
  published_.erase(state.entry);
  state.prefix = kNoPrefix;
  if (state.holders == 0) free_.push_back(page);
}

}  // namespace llm
