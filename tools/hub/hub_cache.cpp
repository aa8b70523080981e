#include "tools/hub/hub_cache.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/atomic_file.h"
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
  fresh += fmt::format(".tmp.{}", ::getpid());
  fs::create_symlink(target, fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (!error) return Ok{};
  std::error_code ignored;
  fs::remove(fresh, ignored);
  return io_error(link.string(), error.message());
}

/// An advisory lock of a file, as the hub's library takes it too; released on destruction.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {}
  ~FileLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool lock(bool waits) const {
    int taken = -1;
    do taken = ::flock(descriptor_, waits ? LOCK_EX : LOCK_EX | LOCK_NB);
    while (taken != 0 && errno == EINTR);
    return taken == 0;
  }

 private:
  int descriptor_;
};

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

Status HubCache::fetch_once(const HubFile& file, const std::function<void()>& wait,
                            const std::function<Status()>& fetch) const {
  std::error_code error;
  if (fs::is_regular_file(blob(file), error)) return Ok{};
  LLM_RETURN_IF_ERROR(make_folder(locks_));
  LLM_RETURN_IF_ERROR(make_folder(root_ + "/blobs"));
  const std::string path = fmt::format("{}/{}.lock", locks_, file.sha256);
  const FileLock lock(path);
  if (!lock.lock(false)) {
    if (errno != EWOULDBLOCK) return io_error(path, std::strerror(errno));
    wait();
    if (!lock.lock(true)) return io_error(path, std::strerror(errno));
  }
  if (fs::is_regular_file(blob(file), error)) return Ok{};
  return fetch();
}

Result<std::string> HubCache::add(const std::string& commit,
                                  const std::vector<HubFile>& files) const {
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
