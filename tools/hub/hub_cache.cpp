#include "tools/hub/hub_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/atomic_file.h"
#include "base/file_lock.h"
#include "tools/common/tool.h"

namespace llm {
namespace {

namespace fs = std::filesystem;

Error io_error(const std::string& path, const std::string& reason) {
  return in_file(Error{ErrorCode::kIo, "", reason}, path);
}

Status make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return error ? Status(io_error(folder.string(), error.message())) : Ok{};
}

/// A symbolic link at `link` in place of whatever is there.
Status put_link(const fs::path& link, const fs::path& target) {
  std::error_code error;
  if (fs::read_symlink(link, error) == target) return Ok{};
  fs::path fresh = link;
  fresh += ".llm.tmp";
  // No other process is here (HubCache::add()): what has that name, a killed one has left.
  if (fs::is_symlink(fresh, error)) fs::remove(fresh, error);
  fs::create_symlink(target, fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (!error) return Ok{};
  std::error_code ignored;
  fs::remove(fresh, ignored);
  return io_error(link.string(), error.message());
}

/// In a lock file: its contents were begun by us. The hub's library empties the file as it locks.
constexpr std::string_view kOurs = "llm\n";

void write_lock_file(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::trunc) << text;
}

std::string folder_name(std::string repo) {
  repo.replace(repo.find('/'), 1, "--");
  return "models--" + repo;
}

}  // namespace

HubCache::HubCache(const std::string& folder, const std::string& repo)
    : root_(folder + "/" + folder_name(repo)), locks_(folder + "/.locks/" + folder_name(repo)) {}

std::string HubCache::last_commit() const {
  constexpr std::size_t kLimit = 100;
  const auto commit = read_text_file(root_ + "/refs/main", kLimit);
  return commit.ok() && is_safe_hub_path(*commit) ? *commit : "";
}

std::string HubCache::path_in(const std::string& commit, const HubFile& file) const {
  return fmt::format("{}/snapshots/{}/{}", root_, commit, file.path);
}

std::vector<HubFile> HubCache::files() const {
  std::vector<HubFile> found;
  const std::string commit = last_commit();
  if (commit.empty()) return found;
  const fs::path folder = path_in(commit, {});
  std::error_code error;
  fs::recursive_directory_iterator entries(folder, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    std::error_code dangling;
    if (fs::is_regular_file(entries->path(), dangling))
      found.push_back({entries->path().lexically_relative(folder).string()});
  }
  return found;
}

Status HubCache::remove(const std::vector<HubFile>& files) const {
  std::error_code error;
  const auto linked_to = [&](const fs::path& target) {
    fs::recursive_directory_iterator entries(root_ + "/snapshots", error);
    for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
      std::error_code ignored;
      if (fs::weakly_canonical(entries->path(), ignored) == target) return true;
    }
    return false;
  };
  for (const HubFile& file : files) {
    const fs::path link = path(file);
    const fs::path target = fs::weakly_canonical(link, error);
    fs::remove(link, error);
    if (error) return io_error(link.string(), error.message());
    const bool is_blob = target.parent_path() == fs::weakly_canonical(root_ + "/blobs", error);
    if (is_blob && !linked_to(target)) fs::remove(target, error);
    if (error) return io_error(target.string(), error.message());
  }
  return Ok{};
}

Status HubCache::fetch_once(const HubFile& file, const std::function<void()>& wait,
                            const std::function<Status()>& fetch) const {
  std::error_code error;
  if (fs::is_regular_file(blob(file), error)) return Ok{};
  LLM_RETURN_IF_ERROR(make_folder(locks_));
  LLM_RETURN_IF_ERROR(make_folder(root_ + "/blobs"));
  const std::string path = fmt::format("{}/{}.lock", locks_, file.sha256);
  LLM_TRY(const FileLock lock,
          FileLock::take(path, FileLock::IfHeld::kWait, FileLock::IfAbsent::kCreate, wait));
  if (fs::is_regular_file(blob(file), error)) return Ok{};
  write_lock_file(path, kOurs);
  LLM_RETURN_IF_ERROR(fetch());
  write_lock_file(path, "");
  return Ok{};
}

void HubCache::remove_stale(const std::vector<HubFile>& listed) const {
  const auto is_listed = [&listed](const std::string& sha256) {
    return std::ranges::find(listed, sha256, &HubFile::sha256) != listed.end();
  };
  std::error_code error;
  fs::directory_iterator entries(locks_, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string path = entries->path().string();
    const std::string sha256 = entries->path().stem().string();
    const auto text = read_text_file(path, kOurs.size());
    if (!text.ok() || *text != kOurs || is_listed(sha256)) continue;
    const auto lock = FileLock::take(path, FileLock::IfHeld::kFail);
    if (!lock.ok() || !lock->is_held()) continue;
    std::error_code ignored;
    fs::remove(blob({.path = {}, .sha256 = sha256}) + ".incomplete", ignored);
    write_lock_file(path, "");
  }
}

Result<std::string> HubCache::add(const std::string& commit,
                                  const std::vector<HubFile>& files) const {
  LLM_RETURN_IF_ERROR(make_folder(locks_));
  LLM_TRY(const FileLock lock, FileLock::take(locks_ + "/links.llm.lock", FileLock::IfHeld::kWait,
                                              FileLock::IfAbsent::kCreate));
  for (const HubFile& file : files) {
    const fs::path link = path_in(commit, file);
    LLM_RETURN_IF_ERROR(make_folder(link.parent_path()));
    LLM_RETURN_IF_ERROR(
        put_link(link, fs::path(blob(file)).lexically_relative(link.parent_path())));
  }
  LLM_RETURN_IF_ERROR(make_folder(root_ + "/refs"));
  LLM_RETURN_IF_ERROR(
      write_file_atomically(root_ + "/refs/main", std::as_bytes(std::span(commit))));
  return path_in(commit, files.front());
}

}  // namespace llm
