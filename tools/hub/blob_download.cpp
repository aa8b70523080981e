#include "tools/hub/blob_download.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "base/sha256.h"

namespace llm {
namespace {

constexpr int kTries = 4;  // in a row without progress; of servers that begin anew, in all
constexpr std::uint64_t kProgressBytes = 64 << 10;

/// path.incomplete: the first bytes of a file, and their hash.
class Incomplete {
 public:
  Incomplete(std::string path, std::uint64_t whole)
      : path_(std::move(path)),
        whole_(whole),
        descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {}
  /// What has no byte is no beginning.
  ~Incomplete() {
    struct stat status {};
    if (descriptor_ < 0) return;
    if (::fstat(descriptor_, &status) == 0 && status.st_size == 0) ::unlink(path_.c_str());
    ::close(descriptor_);
  }
  Incomplete(const Incomplete&) = delete;
  Incomplete& operator=(const Incomplete&) = delete;

  std::uint64_t size() const { return size_; }
  bool is_whole() const { return size_ == whole_; }
  std::uint64_t whole() const { return whole_; }
  int restarts() const { return restarts_; }
  std::string hash() const { return hash_.hex(); }
  const std::string& path() const { return path_; }

  /// Takes up what is there. Errors: kIo.
  Status resume(const std::function<void(std::uint64_t)>& progress) {
    struct stat status {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) return error();
    if (static_cast<std::uint64_t>(status.st_size) > whole_) return restart();
    std::vector<std::byte> piece(std::size_t{1} << 20);
    while (true) {
      const ssize_t count =
          ::pread(descriptor_, piece.data(), piece.size(), static_cast<off_t>(size_));
      if (count < 0) return error();
      if (count == 0) return Ok{};
      hash_.update(std::span(piece).first(static_cast<std::size_t>(count)));
      size_ += static_cast<std::uint64_t>(count);
      progress(size_);
    }
  }

  /// Nothing is there.
  Status restart() {
    if (::ftruncate(descriptor_, 0) != 0) return error();
    if (size_ > 0) ++restarts_;
    size_ = 0;
    hash_ = Sha256();
    return Ok{};
  }

  /// Errors: kIo; kIntegrity for more bytes than the file has.
  Status append(std::span<const std::byte> bytes) {
    if (bytes.size() > whole_ - size_) {
      return Error{ErrorCode::kIntegrity, "",
                   fmt::format("found {} bytes or more, need {}", size_ + bytes.size(), whole_)};
    }
    hash_.update(bytes);
    while (!bytes.empty()) {
      const ssize_t count =
          ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return error();
      size_ += static_cast<std::uint64_t>(count);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return Ok{};
  }

  /// The file, whole and on disk, gets its name. Errors: kIo.
  Status finish(const std::string& name) const {
    if (::fsync(descriptor_) != 0 || ::rename(path_.c_str(), name.c_str()) != 0) return error();
    return Ok{};
  }

 private:
  Error error() const { return in_file(Error{ErrorCode::kIo, "", std::strerror(errno)}, path_); }

  std::string path_;
  std::uint64_t whole_;
  int descriptor_;
  std::uint64_t size_ = 0;
  int restarts_ = 0;
  Sha256 hash_;
};

/// One request, from where the last one ended.
Result<HttpReply> fetch_rest(HttpCall request, Incomplete& file,
                             const std::function<void(std::uint64_t)>& progress) {
  Status taken = Ok{};
  request.from = file.size();
  request.take = [&](std::uint64_t offset, std::span<const std::byte> bytes) {
    if (offset == 0 && file.size() > 0) taken = file.restart();  // the server knows no ranges
    if (taken.ok()) taken = file.append(bytes);
    progress(file.size());
    return taken.ok();
  };
  const auto answer = http_call(request);
  if (!taken.ok()) return in_file(taken.error(), request.url);
  if (answer.ok() && answer->status == 416) LLM_RETURN_IF_ERROR(file.restart());
  return answer;
}

/// What ends a download that does not go on.
Error given_up(const HttpCall& request, const Result<HttpReply>& answer, const Incomplete& file,
               const std::function<Error(const HttpReply&)>& refused) {
  if (answer.ok() && answer->status != 200 && answer->status != 206) return refused(*answer);
  Error error = answer.ok() ? Error{ErrorCode::kIo, "", "the answer ended"} : answer.error();
  error.message +=
      fmt::format(", and no try made progress: found {} bytes, need {}", file.size(), file.whole());
  return in_file(std::move(error), request.url);
}

/// Requests until all bytes are there.
Status fetch_all(const HttpCall& request, Incomplete& file,
                 const std::function<Error(const HttpReply&)>& refused,
                 const std::function<void(std::uint64_t)>& progress) {
  std::uint64_t most = file.size();
  for (int failures = 0; !file.is_whole();) {
    const auto answer = fetch_rest(request, file, progress);
    if (file.is_whole()) break;
    failures = file.size() >= most + kProgressBytes ? 0 : failures + 1;
    most = std::max(most, file.size());
    if (!answer.ok() && answer.error().code != ErrorCode::kIo) return answer.error();
    const bool is_final = answer.ok() && answer->is_refusal() && !answer->may_pass();
    if (is_final || failures == kTries || file.restarts() > kTries)
      return given_up(request, answer, file, refused);
    std::this_thread::sleep_for(std::chrono::milliseconds(250 << failures));
  }
  return Ok{};
}

Status check_space(const std::string& path, std::uint64_t needed) {
  std::error_code unknown;
  const auto space = std::filesystem::space(std::filesystem::path(path).parent_path(), unknown);
  if (unknown || space.available >= needed) return Ok{};
  return in_file(
      Error{ErrorCode::kIo, "",
            fmt::format("found {} bytes free on the disk, need {}", space.available, needed)},
      path);
}

}  // namespace

Status download_blob(const HttpCall& request, const HubFile& file, const std::string& path,
                     const std::function<Error(const HttpReply&)>& refused,
                     const std::function<void(std::uint64_t)>& progress) {
  Incomplete incomplete(path + ".incomplete", file.size);
  LLM_RETURN_IF_ERROR(incomplete.resume(progress));
  LLM_RETURN_IF_ERROR(check_space(path, file.size - incomplete.size()));
  bool had_some = incomplete.size() > 0;
  while (true) {
    const Status fetched = fetch_all(request, incomplete, refused, progress);
    const bool is_whole = fetched.ok();
    if (!is_whole && fetched.error().code != ErrorCode::kIntegrity) return fetched;
    if (is_whole && incomplete.hash() == file.sha256) return incomplete.finish(path);
    if (std::exchange(had_some, false)) {
      LLM_RETURN_IF_ERROR(incomplete.restart());
      continue;
    }
    ::unlink(incomplete.path().c_str());
    if (!is_whole) return fetched;
    return in_file(Error{ErrorCode::kIntegrity, "SHA-256",
                         fmt::format("found {}, need {}", incomplete.hash(), file.sha256)},
                   request.url);
  }
}

}  // namespace llm
