#include "tools/llmserve/api/receipt_log_file.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/core.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/mapped_file.h"
#include "base/start_thread.h"
#include "tools/common/log.h"
#include "tools/common/tool.h"

namespace llm {

Result<std::unique_ptr<ReceiptLogFile>> ReceiptLogFile::open(const std::string& folder,
                                                             std::optional<SigningKey> key) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return in_file(Error{ErrorCode::kIo, "", error.message()}, folder);
  const std::string path = (std::filesystem::path(folder) / kReceiptLogFile).string();
  std::unique_ptr<ReceiptLogFile> log(new ReceiptLogFile(path, std::move(key)));
  // Prompts and texts stand in it: they are the owner's.
  log->descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log->descriptor_ < 0) return log->refused();
  if (::flock(log->descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return log->refused();
    return in_file(
        Error{ErrorCode::kIo, "", "found another process that writes it, need a folder for each"},
        path);
  }
  LLM_RETURN_IF_ERROR(in_file(log->go_on(), path));
  LLM_TRY(log->thread_, start_thread("receipts", [self = log.get()] { self->work(); }));
  return log;
}

ReceiptLogFile::~ReceiptLogFile() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  if (descriptor_ >= 0) ::close(descriptor_);
}

Error ReceiptLogFile::refused() const {
  return in_file(Error{ErrorCode::kIo, "", std::strerror(errno)}, path_);
}

Status ReceiptLogFile::go_on() {
  LLM_TRY(const MappedFile file, MappedFile::open(path_));
  const std::string_view all(reinterpret_cast<const char*>(file.bytes().data()),
                             file.bytes().size());
  const std::size_t end = all.rfind('\n');
  const std::string_view whole = all.substr(0, end == std::string_view::npos ? 0 : end + 1);
  size_ = whole.size();
  if (!whole.empty()) {
    const std::size_t before = whole.substr(0, end).rfind('\n');
    auto head = head_of(whole.substr(before == std::string_view::npos ? 0 : before + 1));
    LLM_RETURN_IF_ERROR(file.check_unchanged("log"));
    if (!head.ok()) {
      Error error = std::move(head).error();
      error.hint = "this is the last line; move the file to start a new log";
      return error;
    }
    head_ = std::move(head).value();
  }
  if (whole.size() < all.size()) {
    spdlog::warn("{}: line {}: found {} bytes without a line break after a crash; removed", path_,
                 head_.n_lines + 1, all.size() - whole.size());
    LLM_RETURN_IF_ERROR(cut());
  }
  spdlog::info("{}: {} lines, head {}", path_, head_.n_lines, head_.sha256);
  return Ok{};
}

void ReceiptLogFile::add(std::function<Receipt()> make) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMostWaiting) {
      ++figures_.lost;
      return;
    }
    waiting_.push_back(std::move(make));
  }
  wake_.notify_one();
}

ReceiptFigures ReceiptLogFile::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

void ReceiptLogFile::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    auto batch = std::exchange(waiting_, {});
    lock.unlock();
    const std::uint64_t n = batch.size();
    std::uint64_t n_logged = 0;
    for (const auto& make : batch) n_logged += log_one(make) ? 1 : 0;
    if (n_logged > 0 && ::fdatasync(descriptor_) != 0) tell_of_sync();
    batch.clear();  // models may be unloaded with it
    lock.lock();
    figures_.logged += n_logged;
    figures_.lost += n - n_logged;
  }
}

bool ReceiptLogFile::log_one(const std::function<Receipt()>& make) noexcept {
  bool is_logged = false;
  try {
    const Status status = append(make());
    is_logged = status.ok();
    if (!is_logged && !fails_)
      spdlog::error("receipts are lost from here on: {}", status.error().to_string());
    if (is_logged && fails_) spdlog::info("{}: receipts are written again", path_);
    fails_ = !is_logged;
  } catch (const std::exception&) {  // memory: this one is lost, the next may not be
    write_error("llmserve", "a receipt is lost: an allocation failed, need more memory");
  }
  return is_logged;
}

void ReceiptLogFile::tell_of_sync() const noexcept {
  try {
    spdlog::error("receipts may be lost in a crash: {}", refused().to_string());
  } catch (const std::exception&) {
    write_error("llmserve", "receipts may be lost in a crash: a sync and an allocation failed");
  }
}

Status ReceiptLogFile::check_place() const {
  struct stat named {};
  struct stat held {};
  if (::stat(path_.c_str(), &named) != 0 || ::fstat(descriptor_, &held) != 0) return refused();
  if (named.st_dev == held.st_dev && named.st_ino == held.st_ino) return Ok{};
  return in_file(Error{ErrorCode::kIo, "", "found a different file, need the one that was opened"},
                 path_);
}

Status ReceiptLogFile::append(const Receipt& receipt) {
  LLM_RETURN_IF_ERROR(check_place());
  if (is_torn_) LLM_RETURN_IF_ERROR(cut());
  const std::string time = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  LLM_TRY(const std::string line, log_line(head_, receipt, time, key_ ? &*key_ : nullptr));
  LLM_TRY(LogHead head, head_of(line));
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t n = ::write(descriptor_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const Error error = refused();
      is_torn_ = rest.size() < line.size();
      if (is_torn_) (void)cut();  // where that fails, it is tried before the next line
      return error;
    }
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  size_ += line.size();
  head_ = std::move(head);
  return Ok{};
}

Status ReceiptLogFile::cut() {
  if (::ftruncate(descriptor_, static_cast<off_t>(size_)) != 0) return refused();
  is_torn_ = false;
  return Ok{};
}

}  // namespace llm
