#include "engine/state/sequence_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace llm {
namespace {

constexpr std::size_t kPage = KvPool::kPagePositions;

/// For so many pages: a page that is taken is never lost for want of memory to note it in.
template <typename Table>
void make_room(Table& table, std::size_t n_pages) {
  table.pages.reserve(n_pages);
  table.memory.reserve(n_pages);
}

/// The tokens of page i.
std::span<const TokenId> page_of(std::span<const TokenId> tokens, std::size_t i) {
  return tokens.subspan(i * kPage, std::min(kPage, tokens.size() - i * kPage));
}

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
  drop_copies();
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
    return make_writable(table, 0, 0);
  }
  make_room(table, 1);
  const auto page = pool_->acquire();
  if (!page) return false;
  table.pages.push_back(*page);
  table.memory.push_back(pool_->memory(*page));
  std::memset(pool_->memory(*page), 0, pool_->page_bytes());
  return true;
}

void SequenceState::copy_states(std::size_t position, CopyFor what) {
  Copy copy{.position = position, .what = what};
  for (std::size_t group = 0; group < tables_.size(); ++group) {
    copy.pages.push_back(KvPool::kNoPage);
    if (!is_state(group)) continue;
    const auto page = pool_->acquire();
    if (!page) return drop_copy(copy);
    copy.pages.back() = *page;
  }
  copies_.push_back(std::move(copy));
}

void SequenceState::lend_copies() {
  for (Copy& copy : copies_) {
    if (copy.what != CopyFor::kReturn || !copy.tickets.empty()) continue;
    copy.tickets.reserve(copy.pages.size());
    for (const KvPool::Page page : copy.pages)
      copy.tickets.push_back(page == KvPool::kNoPage ? 0 : pool_->lend(page));
  }
}

void SequenceState::drop_copy(Copy& copy) {
  for (std::size_t group = 0; group < copy.pages.size(); ++group) {
    const KvPool::Page page = copy.pages[group];
    if (page == KvPool::kNoPage) continue;
    if (copy.tickets.empty()) {
      pool_->release(page);
    } else if (pool_->is_lent(page, copy.tickets[group])) {
      pool_->give_up(page);
    }
  }
}

void SequenceState::drop_copies() {
  for (Copy& copy : copies_) drop_copy(copy);
  copies_.clear();
}

const SequenceState::Copy* SequenceState::copy_before(std::size_t n_positions) const {
  const auto is_there = [this](const Copy& copy) {
    for (std::size_t group = 0; group < copy.tickets.size(); ++group)
      if (is_state(group) && !pool_->is_lent(copy.pages[group], copy.tickets[group])) return false;
    return true;
  };
  for (std::size_t i = copies_.size(); i-- > 0;)
    if (copies_[i].position <= n_positions && is_there(copies_[i])) return &copies_[i];
  return nullptr;
}

bool SequenceState::make_writable(Table& table, std::size_t i, std::size_t from) {
  const KvPool::Page page = table.pages[i];
  if (pool_->is_shared(page)) return own(table, i);
  if (pool_->n_published(page) > from && !own(table, i)) pool_->unpublish(page);
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
      if (!make_writable(table, i, begin - std::min(begin, i * kPage))) return false;
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
  if (n_pages > 0) return;
  states_at_ = 0;
  drop_copies();
}

bool SequenceState::reaches_windows(std::size_t n_positions) const {
  for (std::size_t group = 0; group < tables_.size(); ++group) {
    const std::size_t window = pool_->groups().window(group);
    if (tables_[group].first > KvGroups::first_page(window, n_positions)) return false;
  }
  return true;
}

std::size_t SequenceState::reusable(std::size_t n_positions) const {
  if (pool_->groups().has_states() && n_positions != states_at_) {
    const Copy* const copy = copy_before(n_positions);
    n_positions = copy == nullptr ? 0 : copy->position;
  }
  return reaches_windows(n_positions) ? n_positions : 0;
}

std::size_t SequenceState::truncate(std::size_t n_positions) {
  const std::size_t n = reusable(n_positions);
  if (n > 0 && pool_->groups().has_states() && n != states_at_) return_to(*copy_before(n));
  cut(KvGroups::pages_for(n));
  prefixes_.resize(std::min(prefixes_.size(), n / kPage));
  found_at_ = std::min(found_at_, n);
  return n;
}

void SequenceState::return_to(const Copy& copy) {
  const Copy to = copy;  // as copies_ change
  std::erase_if(copies_, [&](const Copy& other) { return other.position == to.position; });
  for (std::size_t group = 0; group < tables_.size(); ++group) {
    if (!is_state(group)) continue;
    if (!to.tickets.empty()) pool_->take_back(to.pages[group]);
    pool_->release(tables_[group].pages[0]);
    put(tables_[group], 0, to.pages[group]);
  }
  states_at_ = to.position;
  drop_copies();
}

std::span<std::byte> SequenceState::copied_state(std::size_t copy, std::size_t layer) {
  const KvGroups& groups = pool_->groups();
  const KvPool::Page page = copies_[copy].pages[groups.group_of(layer)];
  LLM_CHECK(page != KvPool::kNoPage);
  return {pool_->memory(page) + groups.offset_of(layer), groups.memory(layer).state_bytes};
}

std::size_t SequenceState::adopt(std::span<const TokenId> tokens, std::size_t n_stored) {
  if (tokens.size() <= n_stored) return n_stored;
  const KvGroups& groups = pool_->groups();
  const std::size_t n_own = prefixes_.size();
  std::vector<Prefix> prefixes = prefixes_;
  std::vector<std::vector<KvPool::Match>> found;  // of each page from n_own on, of each group
  for (bool goes_on = true; goes_on && prefixes.size() * kPage < tokens.size();) {
    const Prefix& parent = prefixes.empty() ? root_ : prefixes.back();
    const auto of_page = page_of(tokens, prefixes.size());
    std::vector<KvPool::Match>& matches = found.emplace_back();
    for (std::size_t group = 0; group < groups.size(); ++group) {
      matches.push_back(pool_->find(parent, group, of_page));
      const bool sees_all = !is_state(group) && groups.window(group) == 0;
      goes_on = goes_on && (!sees_all || matches.back().n_positions == kPage);
    }
    prefixes.push_back(prefix_after(parent, of_page));
  }
  // Leading positions of page i that are there.
  const auto there = [&](std::size_t group, std::size_t i) {
    if (i >= n_own) return found[i - n_own][group].n_positions;
    return i < tables_[group].first ? 0 : kPage;
  };
  // The last position of page i to go on from; 0: none.
  const auto end_in = [&](std::size_t i) -> std::size_t {
    std::size_t n = page_of(tokens, i).size();
    for (std::size_t group = 0; group < groups.size(); ++group)
      if (!is_state(group)) n = std::min(n, there(group, i));
    n = find_states(i == 0 ? root_ : prefixes[i - 1], page_of(tokens, i).first(n));
    if (n == 0) return 0;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      if (is_state(group)) continue;
      const std::size_t first = KvGroups::first_page(groups.window(group), i * kPage + n);
      for (std::size_t j = first; j < i; ++j)
        if (there(group, j) < kPage) return 0;  // nor from a position before, which sees more
    }
    return i * kPage + n;
  };
  std::size_t end = 0;
  for (std::size_t i = prefixes.size(); end == 0 && i-- > n_own;) end = end_in(i);
  if (end <= n_stored) return n_stored;
  take_over(tokens.first(end), std::move(prefixes), found);
  return end;
}

SequenceState::Lost SequenceState::lost(std::span<const TokenId> tokens,
                                        std::size_t n_stored) const {
  const KvGroups& groups = pool_->groups();
  const std::size_t first = n_stored / kPage;
  if (prefixes_.size() < first) return {};  // its own pages are still to be published
  Lost lost;
  Prefix parent = prefix_before(first);
  for (std::size_t i = first; (i + 1) * kPage <= tokens.size(); ++i) {
    const Prefix next = prefix_after(parent, page_of(tokens, i));
    if (!pool_->remembers(next)) break;
    lost.n_tokens = (i + 1) * kPage - n_stored;
    if (i == first) {
      lost.why = groups.has_states() ? Gone::kState : Gone::kWindow;
      for (std::size_t group = 0; group < groups.size(); ++group) {
        if (is_state(group) || groups.window(group) > 0) continue;
        if (pool_->find(parent, group, page_of(tokens, i)).n_positions < kPage)
          lost.why = Gone::kEvicted;
      }
    }
    parent = next;
  }
  return lost;
}

std::size_t SequenceState::find_states(const Prefix& parent,
                                       std::span<const TokenId> tokens) const {
  while (!tokens.empty()) {
    std::size_t least = tokens.size();
    for (std::size_t group = 0; group < tables_.size(); ++group)
      if (is_state(group)) least = std::min(least, pool_->find(parent, group, tokens).n_positions);
    if (least == tokens.size()) break;
    tokens = tokens.first(least);
  }
  return tokens.size();
}

void SequenceState::take_over(std::span<const TokenId> tokens, std::vector<Prefix> prefixes,
                              std::span<const std::vector<KvPool::Match>> found) {
  const std::size_t n_own = prefixes_.size();
  const std::size_t n_pages = KvGroups::pages_for(tokens.size());
  for (Table& table : tables_) make_room(table, n_pages);
  // From here on nothing fails; what is given back stays in its page until the next acquire().
  drop_copies();
  cut(n_own);
  drop_before(tokens.size());
  prefixes_ = std::move(prefixes);
  for (std::size_t group = 0; group < tables_.size(); ++group) {
    Table& table = tables_[group];
    const auto push = [&](KvPool::Page page) {
      pool_->share(page);
      table.pages.push_back(page);
      table.memory.push_back(pool_->memory(page));
    };
    if (is_state(group)) {
      const std::size_t i = n_pages - 1;
      const auto state = pool_->find(prefix_before(i), group, page_of(tokens, i));
      if (table.size() > 0) pool_->release(table.pages[0]);
      table.pages.clear();
      table.memory.clear();
      push(state.page);
    } else {
      for (std::size_t i = std::max(n_own, table.first); i < n_pages; ++i)
        push(found[i - n_own][group].page);
    }
  }
  prefixes_.resize(tokens.size() / kPage);
  states_at_ = tokens.size();
  found_at_ = tokens.size();
}

void SequenceState::publish(std::span<const TokenId> tokens, Publish what) {
  prefixes_.reserve(tokens.size() / kPage);
  const auto is_for_others = [](const Copy& copy) { return copy.what == CopyFor::kPublish; };
  const bool has_copies = std::ranges::any_of(copies_, is_for_others);
  for (std::size_t i = prefixes_.size(); i * kPage < tokens.size(); ++i) {
    const auto of_page = page_of(tokens, i);
    if (of_page.size() < kPage && what == Publish::kWholePages && !has_copies) break;
    for (std::size_t group = 0; group < tables_.size(); ++group)
      if (!is_state(group)) publish_page(tables_[group], group, i, of_page);
    if (of_page.size() < kPage) continue;
    prefixes_.push_back(prefix_after(prefix_before(i), of_page));
    pool_->remember(prefixes_.back());
  }
  for (Copy& copy : copies_)
    if (is_for_others(copy)) publish_states(tokens.first(copy.position), copy.pages);
  for (Copy& copy : copies_)
    if (is_for_others(copy)) drop_copy(copy);
  std::erase_if(copies_, is_for_others);
  if (what == Publish::kWholePages || tokens.empty() || states_at_ != tokens.size()) return;
  std::vector<KvPool::Page> pages;
  for (std::size_t group = 0; group < tables_.size(); ++group)
    pages.push_back(is_state(group) ? tables_[group].pages[0] : KvPool::kNoPage);
  publish_states(tokens, pages);
  for (std::size_t group = 0; group < tables_.size(); ++group)
    if (is_state(group)) put(tables_[group], 0, pages[group]);
}

void SequenceState::publish_page(Table& table, std::size_t group, std::size_t i,
                                 std::span<const TokenId> tokens) {
  KvPool::Page page = table.pages[i];
  if (page == KvPool::kNoPage) return;
  pool_->publish(prefix_before(i), group, tokens, page);
  put(table, i, page);
}

void SequenceState::publish_states(std::span<const TokenId> tokens,
                                   std::vector<KvPool::Page>& pages) {
  const std::size_t last = (tokens.size() - 1) / kPage;
  for (std::size_t group = 0; group < tables_.size(); ++group) {
    if (!is_state(group)) continue;
    pool_->publish(prefix_before(last), group, page_of(tokens, last), pages[group]);
    pool_->set_worth(pages[group], tokens.size() - std::min(found_at_, tokens.size()));
  }
  found_at_ = tokens.size();
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

}  // namespace llm
