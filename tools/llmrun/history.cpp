#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "base/atomic_file.h"
#include "base/file_lock.h"
#include "tools/common/tool.h"
#include "tools/llmrun/line_reader.h"

namespace llm {
namespace {

constexpr std::size_t kMostBytes = std::size_t{16} << 20;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// A line of several lines as it stands in the file: each but the last ends with a backslash.
std::string encoded(const std::string& line) {
  std::string text;
  for (const char c : line) text += c == '\n' ? std::string("\\\n") : std::string(1, c);
  return text + '\n';
}

std::vector<std::string> decoded(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  bool goes_on = false;
  for (std::string line; std::getline(stream, line);) {
    if (goes_on) {
      lines.back().back() = '\n';
      lines.back() += line;
    } else {
      lines.push_back(line);
    }
    goes_on = line.ends_with('\\');
  }
  return lines;
}

}  // namespace

std::string default_history_path() {
  std::string state = environment("XDG_STATE_HOME");
  // The XDG specification has relative paths ignored.
  if (!state.starts_with('/')) {
    const std::string home = environment("HOME");
    if (!home.starts_with('/')) return "";
    state = home + "/.local/state";
  }
  return state + "/llmrun/history";
}

std::vector<std::string> read_history(const std::string& path) {
  std::vector<std::string> lines;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return lines;
  // So that no line is added between reading and shortening.
  auto lock = FileLock::take(path, FileLock::IfHeld::kWait);
  if (!lock.ok()) return lines;
  const auto text = read_text_file(path, kMostBytes);
  if (!text.ok()) return lines;
  lines = decoded(*text);
  if (lines.size() <= kHistoryLines) return lines;
  const bool is_long = lines.size() > 2 * kHistoryLines;
  lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kHistoryLines));
  if (is_long) {
    std::string rest;
    for (const std::string& line : lines) rest += encoded(line);
    // Best effort: a history that stays long is shortened the next time.
    (void)write_file_atomically(path, std::as_bytes(std::span(rest)), &*lock).ok();
  }
  return lines;
}

bool append_history(const std::string& path, const std::string& line) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  FileLock lock;  // the file stays the path's until the line is in it
  if (std::filesystem::is_regular_file(path, ignored)) {
    auto taken = FileLock::take(path, FileLock::IfHeld::kWait);
    if (taken.ok()) lock = std::move(taken).value();
  }
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
  if (file < 0) return false;
  const std::string text = encoded(line);
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(file);
  return written;
}

}  // namespace llm
