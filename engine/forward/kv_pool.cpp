#include "engine/forward/kv_pool.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/checked_size.h"

namespace llm {

Result<std::shared_ptr<KvPool>> KvPool::create(KvGroups groups, std::size_t n_pages, KvType type) {
  auto pool = std::make_shared<KvPool>();
  pool->type_ = type;
  pool->groups_ = std::move(groups);
  const auto bytes = (CheckedSize(pool->page_bytes()) * n_pages).value();
  if (!bytes || n_pages > kNoPage) return detail::out_of_memory(UINT64_MAX, "KV cache");
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
  if (!state.is_published) free_.push_back(page);
}

KvPool::Prefix KvPool::publish(Prefix parent, std::span<const TokenId> tokens,
                               std::span<Page> pages) {
  LLM_CHECK(tokens.size() == kPagePositions && pages.size() == groups_.size());
  const auto [entry, is_new] =
      published_.try_emplace({parent, std::vector<TokenId>(tokens.begin(), tokens.end())},
                             Published{last_prefix_ + 1, std::vector<Page>(pages.size(), kNoPage)});
  Published& kept = entry->second;
  if (is_new) ++last_prefix_;
  for (std::size_t group = 0; group < pages.size(); ++group) {
    Page& page = pages[group];
    if (page == kNoPage) continue;
    LLM_CHECK(!states_[page].is_published);
    if (kept.pages[group] == kNoPage) {
      kept.pages[group] = page;
      states_[page].is_published = true;
      states_[page].entry = entry;
    } else {
      retain(kept.pages[group]);
      release(std::exchange(page, kept.pages[group]));
    }
  }
  return kept.prefix;
}

const KvPool::Published* KvPool::find(Prefix parent, std::span<const TokenId> tokens) const {
  const auto entry = published_.find({parent, std::vector<TokenId>(tokens.begin(), tokens.end())});
  return entry == published_.end() ? nullptr : &entry->second;
}

void KvPool::share(Page page) {
  retain(page);
  ++shared_;
}

void KvPool::unpublish(Page page) {
  State& state = states_[page];
  if (!state.is_published) return;
  std::vector<Page>& pages = state.entry->second.pages;
  std::ranges::replace(pages, page, kNoPage);
  if (std::ranges::all_of(pages, [](Page p) { return p == kNoPage; }))
    published_.erase(state.entry);
  state.is_published = false;
  if (state.holders == 0) free_.push_back(page);
}

}  // namespace llm
