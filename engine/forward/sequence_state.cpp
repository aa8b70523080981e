#include "engine/forward/sequence_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace llm {
namespace {

/// For so many pages: a page that is taken is never lost for want of memory to note it in.
template <typename Table>
void make_room(Table& table, std::size_t n_pages) {
  table.pages.reserve(n_pages);
  table.memory.reserve(n_pages);
}

}  // namespace
namespace {

constexpr std::size_t kPage = KvPool::kPagePositions;

}  // namespace

std::size_t SequenceState::n_pages() const {
  std::size_t n = 0;
  for (const Table& table : tables_) n += table.size() - table.first;
  return n;
}

void SequenceState::put(Table& table, std::size_t i, KvPool::Page page) {
  table.pages[i] = page;
  table.memory[i] = page == KvPool::kNoPage ? nullptr : pool_->memory(page);
}

bool SequenceState::reserve(std::size_t begin, std::size_t end) {
  drop_before(KvGroups::kept_from(begin));
  for (std::size_t group = 0; group < tables_.size(); ++group) {
    const bool is_state = pool_->groups().is_state(group);
    Table& table = tables_[group];
    if (is_state ? !reserve_states(table, begin) : !reserve(table, begin, end)) return false;
  }
  states_at_ = end;
  return true;
}

bool SequenceState::reserve_states(Table& table, std::size_t begin) {
  if (table.size() > 0) {
    LLM_CHECK(states_at_ == begin);
    return !pool_->is_shared(table.pages[0]) || own(table, 0);
  }
  make_room(table, 1);
  const auto page = pool_->acquire();
  if (!page) return false;
  table.pages.push_back(*page);
  table.memory.push_back(pool_->memory(*page));
  std::memset(pool_->memory(*page), 0, pool_->page_bytes());
  return true;
}

bool SequenceState::own(Table& table, std::size_t i) {
  const auto page = pool_->acquire();
  if (!page) return false;
  std::memcpy(pool_->memory(*page), table.memory[i], pool_->page_bytes());
  pool_->release(table.pages[i]);
  put(table, i, *page);
  return true;
}

bool SequenceState::reserve(Table& table, std::size_t begin, std::size_t end) {
  make_room(table, KvGroups::pages_for(end));
  for (std::size_t i = std::min(begin / kPage, table.size()); i * kPage < end; ++i) {
    if (i < table.size()) {
      prefixes_.resize(std::min(prefixes_.size(), i));
      if (!pool_->is_shared(table.pages[i])) {
        pool_->unpublish(table.pages[i]);
      } else if (!own(table, i)) {
        return false;
      }
      continue;
    }
    const auto page = pool_->acquire();
    if (!page) return false;
    table.pages.push_back(*page);
    table.memory.push_back(pool_->memory(*page));
  }
  return true;
}

void SequenceState::drop_before(std::size_t position) {
  for (std::size_t group = 0; group < tables_.size(); ++group) {
    Table& table = tables_[group];
    const std::size_t first = KvGroups::first_page(pool_->groups().window(group), position);
    if (table.size() < first) {
      make_room(table, first);
      table.pages.resize(first, KvPool::kNoPage);
      table.memory.resize(first, nullptr);
    }
    for (; table.first < first; ++table.first) {
      if (table.pages[table.first] != KvPool::kNoPage) pool_->release(table.pages[table.first]);
      put(table, table.first, KvPool::kNoPage);
    }
  }
}

void SequenceState::cut(std::size_t n_pages) {
  std::size_t i = 0;
  for (std::size_t group = 0; group < tables_.size(); ++group)
    if (!is_state(group) || n_pages == 0) i = std::max(i, tables_[group].size());
  // Chunk by chunk from the last: of what stays findable, the ends of texts are given up first.
  while (i-- > n_pages) {
    for (std::size_t group = 0; group < tables_.size(); ++group) {
      Table& table = tables_[group];
      if (table.size() <= i || (is_state(group) && n_pages > 0)) continue;
      if (i >= table.first) pool_->release(table.pages[i]);
      table.pages.pop_back();
      table.memory.pop_back();
      table.first = std::min(table.first, i);
    }
  }
  prefixes_.resize(std::min(prefixes_.size(), n_pages));
  if (n_pages == 0) states_at_ = 0;
}

std::size_t SequenceState::reusable(std::size_t n_positions) const {
  if (pool_->groups().has_states() && n_positions != states_at_) return 0;
  for (std::size_t group = 0; group < tables_.size(); ++group) {
    const std::size_t window = pool_->groups().window(group);
    if (tables_[group].first > KvGroups::first_page(window, n_positions)) return 0;
  }
  return n_positions;
}

std::size_t SequenceState::truncate(std::size_t n_positions) {
  const std::size_t n = reusable(n_positions);
  cut(KvGroups::pages_for(n));
  prefixes_.resize(std::min(prefixes_.size(), n / kPage));
  return n;
}

std::size_t SequenceState::adopt(std::span<const TokenId> tokens) {
  const KvGroups& groups = pool_->groups();
  if (groups.has_states()) return 0;  // nobody has published
  const std::size_t n_own = prefixes_.size();
  std::vector<const KvPool::Published*> found;
  // Of each group, pages in a row that are there, the last of them at the end of what was found.
  std::vector<std::size_t> in_row;
  for (const Table& table : tables_) in_row.push_back(n_own - std::min(n_own, table.first));
  std::size_t n_pages = n_own;
  for (std::size_t end = (n_own + 1) * kPage; end <= tokens.size(); end += kPage) {
    const auto* next = pool_->find(found.empty() ? last_prefix() : found.back()->prefix,
                                   tokens.subspan(end - kPage, kPage));
    if (next == nullptr) break;
    found.push_back(next);
    bool is_enough = true;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      in_row[group] = next->pages[group] == KvPool::kNoPage ? 0 : in_row[group] + 1;
      const std::size_t needed = end / kPage - KvGroups::first_page(groups.window(group), end);
      is_enough = is_enough && in_row[group] >= needed;
    }
    if (is_enough) n_pages = end / kPage;
  }
  if (n_pages == n_own) return n_own * kPage;
  for (Table& table : tables_) make_room(table, n_pages);
  prefixes_.reserve(n_pages);
  cut(n_own);
  drop_before(n_pages * kPage);
  for (std::size_t i = n_own; i < n_pages; ++i) {
    for (std::size_t group = 0; group < groups.size(); ++group) {
      Table& table = tables_[group];
      if (i < table.first) continue;
      const KvPool::Page page = found[i - n_own]->pages[group];
      pool_->share(page);
      table.pages.push_back(page);
      table.memory.push_back(pool_->memory(page));
    }
    prefixes_.push_back(found[i - n_own]->prefix);
  }
  return n_pages * kPage;
}

void SequenceState::publish(std::span<const TokenId> tokens) {
  if (pool_->groups().has_states()) return;  // which are not of the pages' ends
  std::vector<KvPool::Page> pages(tables_.size());
  prefixes_.reserve(tokens.size() / kPage);
  for (std::size_t i = prefixes_.size(); (i + 1) * kPage <= tokens.size(); ++i) {
    std::ranges::transform(tables_, pages.begin(), [&](const Table& t) { return t.pages[i]; });
    const auto is_gone = [](KvPool::Page page) { return page == KvPool::kNoPage; };
    if (std::ranges::all_of(pages, is_gone)) return;
    prefixes_.push_back(pool_->publish(last_prefix(), tokens.subspan(i * kPage, kPage), pages));
    for (std::size_t group = 0; group < pages.size(); ++group) put(tables_[group], i, pages[group]);
  }
}

std::span<const std::byte> SequenceState::state(std::size_t layer) const {
  const KvGroups& groups = pool_->groups();
  const Table& table = tables_[groups.group_of(layer)];
  LLM_CHECK(groups.memory(layer).is_state() && table.size() == 1);
  return {table.memory[0] + groups.offset_of(layer), groups.memory(layer).state_bytes};
}

std::span<std::byte> SequenceState::state(std::size_t layer) {
  const std::span<const std::byte> state = std::as_const(*this).state(layer);
  return {const_cast<std::byte*>(state.data()), state.size()};
}

KvRow SequenceState::row(std::size_t layer, std::size_t head, std::size_t position) const {
  const Table& table = tables_[pool_->groups().group_of(layer)];
  const std::size_t i = position / kPage;
  LLM_CHECK(table.first <= i && i < table.size() && head < pool_->n_heads(layer));
  std::byte* page = pool_->memory(table.pages[i]);
  return {pool_->layout(layer), page + pool_->keys_offset(layer, head),
          page + pool_->values_offset(layer, head), position % kPage};
}

void SequenceState::store(std::size_t layer, std::size_t first_row, std::size_t position,
                          std::span<const float> key, std::span<const float> value,
                          const KvRounding& rounding) {
  const std::size_t head_dim = pool_->layout(layer).head_dim;
  LLM_CHECK(key.size() == value.size());
  for (std::size_t i = 0; i < key.size();) {
    const std::size_t d = (first_row + i) % head_dim;
    const std::size_t n = std::min(head_dim - d, key.size() - i);
    row(layer, (first_row + i) / head_dim, position)
        .store(d, key.subspan(i, n), value.subspan(i, n), rounding);
    i += n;
  }
}

void SequenceState::load_raw(std::size_t layer, std::size_t position, std::span<std::byte> key,
                             std::span<std::byte> value) const {
  const std::size_t size = pool_->layout(layer).row_bytes();
  LLM_CHECK(key.size() == value.size() && key.size() == pool_->n_heads(layer) * size);
  for (std::size_t head = 0; head < pool_->n_heads(layer); ++head) {
    row(layer, head, position)
        .load_raw(key.subspan(head * size, size), value.subspan(head * size, size));
  }
}

void SequenceState::store_raw(std::size_t layer, std::size_t position,
                              std::span<const std::byte> key, std::span<const std::byte> value) {
  const std::size_t size = pool_->layout(layer).row_bytes();
  LLM_CHECK(key.size() == value.size() && key.size() == pool_->n_heads(layer) * size);
  for (std::size_t head = 0; head < pool_->n_heads(layer); ++head) {
    row(layer, head, position)
        .store_raw(key.subspan(head * size, size), value.subspan(head * size, size));
  }
}

}  // namespace llm
