// The files that a StateStore knows.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>

#include "engine/state/state_store.h"

namespace llm {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTouchSeconds = 60;
constexpr std::chrono::milliseconds kScanEvery{200};

std::size_t common_start(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

/// Nanoseconds; 0: there is none.
std::int64_t modified(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

std::int64_t now() { return static_cast<std::int64_t>(std::time(nullptr)); }

}  // namespace

StateStore::Found StateStore::find(const KvGroups& groups, const Prefix& parent,
                                   std::span<const TokenId> tokens, bool written_only) {
  Found found;
  const auto names = by_parent_.find(parent);
  if (names == by_parent_.end()) return found;
  // Each part begins where the one before it ends, and goes on the farthest of all.
  while (true) {
    Part next;
    for (const std::string& name : names->second) {
      const Entry& entry = entries_.at(name);
      if (entry.head.first > found.n || entry.head.sections.size() != groups.size() ||
          (written_only && !entry.is_written))
        continue;
      const std::size_t n = common_start(entry.head.tokens, tokens);
      if (n > std::max(found.n, next.end)) next = {name, entry.head, found.n, n};
    }
    if (next.name.empty()) break;
    found.n = next.end;
    found.parts.push_back(std::move(next));
  }
  if (!groups.has_states()) return found;
  for (const std::string& name : names->second) {
    const Entry& entry = entries_.at(name);
    const std::size_t n = entry.head.tokens.size();
    if (entry.head.sections.size() != groups.size() || (written_only && !entry.is_written) ||
        n > found.n || n <= found.n_to_state || common_start(entry.head.tokens, tokens) < n)
      continue;
    bool has_states = true;
    for (std::size_t group = 0; group < groups.size(); ++group)
      has_states =
          has_states && (!groups.is_state(group) || entry.head.sections[group].n_bytes > 0);
    if (has_states) {
      found.n_to_state = n;
      found.state = {name, entry.head, n, n};
    }
  }
  return found;
}

void StateStore::scan() {
  scanned_ = std::chrono::steady_clock::now();
  modified_ = modified(options_.directory);
  std::set<std::string> there;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(options_.directory, error)) {
    const std::string name = file.path().filename().string();
    if (!name.ends_with(kStateSuffix)) continue;
    there.insert(name);
    if (entries_.contains(name)) continue;
    auto head = read_state_head(file.path().string());
    if (head.ok() && head->file_name() != name)
      head = malformed("name", "found a file with the name of a different file");
    if (!head.ok()) {
      refuse(name, head.error());
      continue;
    }
    Entry entry{.head = std::move(*head), .is_written = true};
    entry.bytes = entry.head.file_bytes();
    entry.used = modified(file.path().string()) / 1'000'000'000;
    add(name, std::move(entry));
  }
  std::vector<std::string> gone;
  for (const auto& [name, entry] : entries_)
    if (entry.is_written && !there.contains(name)) gone.push_back(name);
  for (const std::string& name : gone) forget(name);
}

void StateStore::scan_again() {
  if (std::chrono::steady_clock::now() - scanned_ > kScanEvery &&
      modified(options_.directory) != modified_)
    scan();
}

void StateStore::add(const std::string& name, Entry entry) {
  if (entry.used == 0) entry.used = now();
  by_parent_[entry.head.parent].insert(name);
  ++figures_.files;
  figures_.bytes += entry.bytes;
  entries_.emplace(name, std::move(entry));
}

void StateStore::forget(const std::string& name) {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return;
  const auto names = by_parent_.find(entry->second.head.parent);
  names->second.erase(name);
  if (names->second.empty()) by_parent_.erase(names);
  --figures_.files;
  figures_.bytes -= entry->second.bytes;
  entries_.erase(entry);
}

void StateStore::refuse(const std::string& name, const Error& error) {
  forget(name);
  std::error_code ignored;
  if (!fs::exists(path_of(name), ignored)) return;  // another process has deleted it
  ++figures_.refused;
  if (error.code == ErrorCode::kMalformed) ::unlink(path_of(name).c_str());
  tell(error);
}

void StateStore::use(const std::string& name) {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return;
  const std::int64_t before = std::exchange(entry->second.used, now());
  if (entry->second.is_written && entry->second.used - before > kTouchSeconds)
    ::utimensat(AT_FDCWD, path_of(name).c_str(), nullptr, 0);
}

void StateStore::tell(const Error& error) {
  if (options_.notice && told_.insert(error.field + error.message.substr(0, 12)).second)
    options_.notice(error.to_string());
}

void StateStore::evict() {
  if (figures_.bytes <= options_.most_bytes) return;
  scan();
  std::vector<std::pair<std::string, const Entry*>> files;
  for (const auto& [name, entry] : entries_)
    if (entry.is_written) files.emplace_back(name, &entry);
  // What comes after the text's other files is worth nothing without them.
  std::ranges::sort(files, [](const auto& a, const auto& b) {
    const Entry& x = *a.second;
    const Entry& y = *b.second;
    if (x.used != y.used) return x.used < y.used;
    return std::pair(x.head.page, x.head.first) > std::pair(y.head.page, y.head.first);
  });
  for (const auto& [name, entry] : files) {
    if (figures_.bytes <= options_.most_bytes) return;
    ::unlink(path_of(name).c_str());
    ++figures_.evicted;
    forget(name);
  }
}

}  // namespace llm
