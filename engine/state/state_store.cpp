#include "engine/state/state_store.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/start_thread.h"

namespace llm {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPage = KvPool::kPagePositions;

std::span<const TokenId> page_of(std::span<const TokenId> tokens, std::size_t i) {
  return tokens.subspan(i * kPage, std::min(kPage, tokens.size() - i * kPage));
}

/// Scales of q8 are largest magnitudes; kernels rely on that.
Status check_scales(const KvLayout& layout, std::span<const std::byte> heads) {
  for (; layout.type == KvType::kQ8 && !heads.empty(); heads = heads.subspan(layout.row_bytes())) {
    for (std::size_t at = layout.head_dim; at < layout.row_bytes(); at += sizeof(float)) {
      float scale;
      std::memcpy(&scale, &heads[at], sizeof(scale));
      if (std::signbit(scale))  // NaN is a fault of the text's activations
        return malformed("keys and values", fmt::format("found {}, need no negative scale", scale));
    }
  }
  return Ok{};
}

}  // namespace

/// From which position tokens can go on with what is on disk, page by page.
struct StateStore::Plan {
  std::size_t end = 0;
  std::vector<Prefix> parents;
  std::vector<Found> pages;
};

Result<std::shared_ptr<StateStore>> StateStore::open(Options options) {
  std::error_code error;
  fs::create_directory(options.directory, error);
  if (!error && ::access(options.directory.c_str(), R_OK | W_OK | X_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  if (error) {
    return Error{.code = ErrorCode::kIo,
                 .field = "cache directory",
                 .message = fmt::format("cannot create: {}", error.message()),
                 .file = options.directory};
  }
  std::shared_ptr<StateStore> store(new StateStore(std::move(options)));
  store->scan();
  LLM_TRY(store->thread_, start_thread("the cache", [self = store.get()] { self->work(); }));
  return store;
}

StateStore::~StateStore() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

StateStore::Plan StateStore::plan(const KvPool& pool, const Prefix& root,
                                  std::span<const TokenId> tokens, std::size_t n_held) {
  const KvGroups& groups = pool.groups();
  Plan plan;
  Prefix parent = root;
  for (std::size_t i = 0; i * kPage < tokens.size(); ++i) {
    const auto of_page = page_of(tokens, i);
    plan.parents.push_back(parent);
    plan.pages.push_back(find(groups, parent, of_page, true));
    std::size_t in_memory = kPage;
    for (std::size_t group = 0; group < groups.size(); ++group)
      if (!groups.is_state(group))
        in_memory = std::min(in_memory, pool.find(parent, group, of_page).n_positions);
    const std::size_t n = std::max(plan.pages.back().n, in_memory);
    const bool is_held = (i + 1) * kPage <= n_held;
    if (!groups.has_states()) plan.end = i * kPage + n;
    if (groups.has_states() && plan.pages.back().n_to_state > 0)
      plan.end = i * kPage + plan.pages.back().n_to_state;
    if (!is_held && n < kPage) break;
    parent = prefix_after(parent, of_page);
  }
  return plan;
}

std::size_t StateStore::load(KvPool& pool, const Prefix& root, std::span<const TokenId> tokens,
                             std::size_t n_held) {
  const KvGroups& groups = pool.groups();
  while (true) {
    Plan plan;
    {
      const std::lock_guard lock(mutex_);
      scan_again();
      plan = this->plan(pool, root, tokens, n_held);
    }
    if (plan.end <= n_held) return 0;
    const std::size_t last = (plan.end - 1) / kPage;
    std::size_t n_read = 0;
    Loaded loaded = Loaded::kWhole;
    for (std::size_t i = 0; i <= last && loaded == Loaded::kWhole; ++i) {
      const auto of_page = page_of(tokens.first(plan.end), i);
      std::vector<bool> wanted(groups.size());
      for (std::size_t group = 0; group < groups.size(); ++group) {
        const bool is_needed =
            groups.is_state(group)
                ? i == last
                : i >= n_held / kPage && i >= KvGroups::first_page(groups.window(group), plan.end);
        wanted[group] =
            is_needed && pool.find(plan.parents[i], group, of_page).n_positions < of_page.size();
      }
      if (std::ranges::find(wanted, true) == wanted.end()) continue;
      loaded = load_page(pool, plan.parents[i], of_page, plan.pages[i], wanted);
      n_read += of_page.size();
    }
    const std::lock_guard lock(mutex_);
    if (loaded == Loaded::kDamaged) continue;  // without that file
    figures_.tokens_read += n_read;
    return n_read;
  }
}

StateStore::Loaded StateStore::load_page(KvPool& pool, const Prefix& parent,
                                         std::span<const TokenId> tokens, const Found& found,
                                         const std::vector<bool>& wanted) {
  const KvGroups& groups = pool.groups();
  std::vector<KvPool::Page> pages(groups.size(), KvPool::kNoPage);
  const auto give_back = [&] {
    for (const KvPool::Page page : pages)
      if (page != KvPool::kNoPage) pool.release(page);
  };
  for (std::size_t group = 0; group < groups.size(); ++group) {
    if (!wanted[group]) continue;
    const auto page = pool.acquire();
    if (!page) {
      give_back();
      return Loaded::kFull;
    }
    pages[group] = *page;
  }
  std::vector<bool> states(groups.size());
  std::vector<bool> rows(groups.size());
  for (std::size_t group = 0; group < groups.size(); ++group)
    (groups.is_state(group) ? states : rows)[group] = wanted[group];
  const auto read = [&](const Part& part, const std::vector<bool>& of) {
    const Status status = read_part(pool, part, tokens.size(), of, pages);
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      use(part.name);
    } else {
      refuse(part.name, status.error());
    }
    return status.ok();
  };
  bool is_read = true;
  for (const Part& part : found.parts)
    if (is_read && part.begin < tokens.size()) is_read = read(part, rows);
  if (is_read && std::ranges::find(states, true) != states.end())
    is_read = read(found.state, states);
  if (is_read) {
    for (std::size_t group = 0; group < groups.size(); ++group)
      if (wanted[group]) pool.publish(parent, group, tokens, pages[group]);
  }
  give_back();
  return is_read ? Loaded::kWhole : Loaded::kDamaged;
}

Status StateStore::read_part(KvPool& pool, const Part& part, std::size_t n,
                             std::vector<bool> wanted, std::span<const KvPool::Page> pages) const {
  LLM_TRY(const auto sections, read_state_sections(path_of(part.name), part.head, wanted));
  const Status checked = check_part(pool, part, sections);
  if (!checked.ok()) return in_file(checked.error(), path_of(part.name));
  for (std::size_t group = 0; group < wanted.size(); ++group) {
    if (!wanted[group]) continue;
    const std::size_t end = std::min(part.end, n);
    pool.store_raw(pages[group], group, part.head.first, part.head.tokens.size() - part.head.first,
                   part.begin, end - part.begin, sections[group]);
  }
  return Ok{};
}

Status StateStore::check_part(const KvPool& pool, const Part& part,
                              std::span<const std::vector<std::byte>> sections) {
  const KvGroups& groups = pool.groups();
  const std::size_t n = part.head.tokens.size() - part.head.first;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    std::span<const std::byte> bytes = sections[group];
    if (bytes.empty()) continue;
    if (bytes.size() != pool.raw_bytes(group, n))
      return malformed("section", fmt::format("found {} bytes, need {}", bytes.size(),
                                              pool.raw_bytes(group, n)));
    for (const std::size_t layer : groups.layers_of(group)) {
      if (groups.is_state(group)) continue;
      const std::size_t size = n * 2 * pool.row_bytes(layer);
      LLM_RETURN_IF_ERROR(check_scales(pool.layout(layer), bytes.first(size)));
      bytes = bytes.subspan(size);
    }
  }
  return Ok{};
}

void StateStore::save(const KvPool& pool, const Prefix& parent, std::size_t page,
                      std::span<const TokenId> tokens) {
  const KvGroups& groups = pool.groups();
  Found found;
  {
    const std::lock_guard lock(mutex_);
    found = find(groups, parent, tokens, false);
    for (const Part& part : found.parts) use(part.name);
  }
  if (found.n == tokens.size() && !groups.has_states()) return;
  for (std::size_t group = 0; group < groups.size(); ++group)
    if (!groups.is_state(group))
      tokens = tokens.first(pool.find(parent, group, tokens).n_positions);
  std::vector<KvPool::Page> pages;
  bool has_states = groups.has_states() && found.n_to_state != tokens.size();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const auto match = pool.find(parent, group, tokens);
    pages.push_back(match.page);
    has_states = has_states && match.n_positions == tokens.size();
  }
  if (tokens.empty() || (found.n >= tokens.size() && !has_states)) return;
  Job job;
  Entry entry;
  entry.head.first = static_cast<std::uint32_t>(std::min(found.n, tokens.size()));
  entry.head.parent = parent;
  entry.head.page = static_cast<std::uint32_t>(page);
  entry.head.tokens.assign(tokens.begin(), tokens.end());
  const std::size_t n = tokens.size() - entry.head.first;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const bool is_kept = !groups.is_state(group) || has_states;
    entry.head.sections.push_back({is_kept ? pool.raw_bytes(group, n) : 0, {}});
  }
  entry.bytes = entry.head.file_bytes();
  {
    const std::lock_guard lock(mutex_);
    if (waiting_bytes_ + entry.bytes > options_.most_waiting) {
      ++figures_.dropped;
      return;
    }
  }
  for (std::size_t group = 0; group < groups.size(); ++group) {
    auto& bytes = job.sections.emplace_back(entry.head.sections[group].n_bytes);
    if (!bytes.empty()) pool.load_raw(pages[group], group, entry.head.first, n, bytes);
  }
  job.name = entry.head.file_name();
  job.bytes = entry.bytes;
  const std::lock_guard lock(mutex_);
  if (entries_.contains(job.name)) return;
  add(job.name, std::move(entry));
  waiting_bytes_ += job.bytes;
  waiting_.push_back(std::move(job));
  wake_.notify_one();
}

void StateStore::flush() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return waiting_.empty() && !is_writing_; });
}

StateStore::Figures StateStore::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

void StateStore::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Job job = std::move(waiting_.front());
    waiting_.pop_front();
    is_writing_ = true;
    StateHead head = entries_.at(job.name).head;
    lock.unlock();
    Status status = Ok{};
    try {
      status = write_state_file(path_of(job.name), head, job.sections);
    } catch (const std::bad_alloc&) {
      status = Error{ErrorCode::kResource, "memory", "found none, need it to write the cache"};
    }
    lock.lock();
    is_writing_ = false;
    waiting_bytes_ -= job.bytes;
    const auto entry = entries_.find(job.name);
    if (status.ok()) {
      figures_.bytes_written += job.bytes;
      entry->second.head = std::move(head);
      entry->second.is_written = true;
      evict();
    } else {
      ++figures_.dropped;
      forget(job.name);
      tell(status.error());
    }
    if (waiting_.empty()) idle_.notify_all();
  }
}

}  // namespace llm
