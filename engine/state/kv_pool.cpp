#include "engine/state/kv_pool.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/checked_size.h"
#include "engine/state/kv_row.h"

namespace llm {
namespace {

/// Leading tokens that both have.
std::size_t common_start(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

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

std::size_t KvPool::raw_bytes(std::size_t group, std::size_t n) const {
  std::size_t bytes = 0;
  for (const std::size_t layer : groups_.layers_of(group))
    bytes += groups_.is_state(group) ? groups_.memory(layer).state_bytes : n * 2 * row_bytes(layer);
  return bytes;
}

void KvPool::load_raw(Page page, std::size_t group, std::size_t first, std::size_t n,
                      std::span<std::byte> out) const {
  auto* const from = const_cast<std::byte*>(memory(page));  // KvRow reads alone
  for (const std::size_t layer : groups_.layers_of(group)) {
    if (groups_.is_state(group)) {
      const std::size_t size = groups_.memory(layer).state_bytes;
      std::memcpy(out.data(), from + groups_.offset_of(layer), size);
      out = out.subspan(size);
      continue;
    }
    const std::size_t size = layout(layer).row_bytes();
    const std::size_t values = n_heads(layer) * size;
    for (std::size_t position = first; position < first + n; ++position) {
      for (std::size_t head = 0; head < n_heads(layer); ++head) {
        KvRow(layout(layer), from + keys_offset(layer, head), from + values_offset(layer, head),
              position)
            .load_raw(out.subspan(head * size, size), out.subspan(values + head * size, size));
      }
      out = out.subspan(2 * values);
    }
  }
}

void KvPool::store_raw(Page page, std::size_t group, std::size_t begin, std::size_t n_all,
                       std::size_t first, std::size_t n, std::span<const std::byte> bytes) {
  std::byte* const to = memory(page);
  for (const std::size_t layer : groups_.layers_of(group)) {
    if (groups_.is_state(group)) {
      const std::size_t size = groups_.memory(layer).state_bytes;
      std::memcpy(to + groups_.offset_of(layer), bytes.data(), size);
      bytes = bytes.subspan(size);
      continue;
    }
    const std::size_t size = layout(layer).row_bytes();
    const std::size_t values = n_heads(layer) * size;
    for (std::size_t position = first; position < first + n; ++position) {
      const auto row = bytes.subspan((position - begin) * 2 * values, 2 * values);
      for (std::size_t head = 0; head < n_heads(layer); ++head) {
        KvRow(layout(layer), to + keys_offset(layer, head), to + values_offset(layer, head),
              position)
            .store_raw(row.subspan(head * size, size), row.subspan(values + head * size, size));
      }
    }
    bytes = bytes.subspan(n_all * 2 * values);
  }
}

std::optional<KvPool::Page> KvPool::acquire() {
  if (free_.empty()) {
    // Linear, but once per page and only when the pool is full of old prefixes.
    const auto unused = [this](const State& state) { return clock_ + 1 - state.last_used; };
    const State* least = nullptr;
    for (const State& state : states_) {
      if (state.holders > 0) continue;
      if (least == nullptr || unused(state) * least->worth > unused(*least) * state.worth)
        least = &state;
    }
    if (least == nullptr) return std::nullopt;
    const auto page = static_cast<Page>(least - states_.data());
    if (least->ticket != 0) {
      give_up(page);
    } else {
      unpublish(page);
    }
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
  if (!state.entry) free_.push_back(page);
}

KvPool::Ticket KvPool::lend(Page page) {
  State& state = states_[page];
  LLM_CHECK(state.holders == 1 && !state.entry);
  state.holders = 0;
  --in_use_;
  state.last_used = ++clock_;
  state.worth = kPagePositions;
  return state.ticket = clock_;
}

void KvPool::take_back(Page page) {
  states_[page].ticket = 0;
  retain(page);
}

void KvPool::give_up(Page page) {
  states_[page].ticket = 0;
  free_.push_back(page);
}

void KvPool::publish(const Prefix& parent, std::size_t group, std::span<const TokenId> tokens,
                     Page& page) {
  LLM_CHECK(!tokens.empty() && tokens.size() <= kPagePositions);
  const Sought sought{parent, group, tokens};
  const bool is_state = groups_.is_state(group);
  const auto next = published_.lower_bound(sought);
  if (is_of(next, sought) &&
      common_start(next->first.tokens, tokens) == (is_state ? next->first.tokens : tokens).size()) {
    if (tokens.size() < kPagePositions || next->second == page) return;
    retain(next->second);
    release(std::exchange(page, next->second));
    return;
  }
  unpublish(page);
  // Of pages that begin alike the longest holds them all: no other is between it and the new one.
  if (!is_state && next != published_.begin()) {
    const auto last = std::prev(next);
    if (is_of(last, sought) &&
        common_start(last->first.tokens, tokens) == last->first.tokens.size())
      unpublish(last->second);
  }
  const auto entry =
      published_.emplace(Key{parent, group, std::vector(tokens.begin(), tokens.end())}, page);
  states_[page].entry = entry.first;
  states_[page].worth = kPagePositions;
}

KvPool::Match KvPool::find(const Prefix& parent, std::size_t group,
                           std::span<const TokenId> tokens) const {
  const Sought sought{parent, group, tokens};
  Match best;
  auto at = published_.lower_bound(sought);
  if (groups_.is_state(group)) {
    // What begins `tokens` is not behind it; and whatever is between begins as much of it at least.
    while (true) {
      if (is_of(at, sought) && at->first.tokens.size() <= tokens.size() &&
          common_start(at->first.tokens, tokens) == at->first.tokens.size())
        return {at->second, at->first.tokens.size()};
      if (at == published_.begin() || !is_of(--at, sought)) return best;
      tokens = tokens.first(common_start(at->first.tokens, tokens));
      if (tokens.empty()) return best;
      if (tokens.size() < at->first.tokens.size())
        at = published_.lower_bound(Sought{parent, group, tokens});
    }
  }
  const auto consider = [&](Directory::const_iterator entry) {
    if (!is_of(entry, sought)) return;
    const std::size_t n = common_start(entry->first.tokens, tokens);
    if (n > best.n_positions) best = {entry->second, n};
  };
  consider(at);
  if (at != published_.begin()) consider(std::prev(at));
  return best;
}

void KvPool::remember(const Prefix& prefix) {
  constexpr std::size_t kMostKnown = 1 << 16;  // pages: 16 million tokens
  if (!known_.insert(prefix).second) return;
  known_order_.push_back(prefix);
  if (known_order_.size() <= kMostKnown) return;
  known_.erase(known_order_.front());
  known_order_.pop_front();
}

void KvPool::share(Page page) {
  retain(page);
  ++shared_;
}

std::size_t KvPool::n_published(Page page) const {
  const auto& entry = states_[page].entry;
  return entry ? (*entry)->first.tokens.size() : 0;
}

void KvPool::unpublish(Page page) {
  State& state = states_[page];
  if (!state.entry) return;
  published_.erase(*state.entry);
  state.entry.reset();
  if (state.holders == 0) free_.push_back(page);
}

}  // namespace llm
