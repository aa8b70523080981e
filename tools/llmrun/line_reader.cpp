#include "tools/llmrun/line_reader.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "tokenizer/tokenizer.h"
#include "tools/common/log.h"
#include "tools/common/signals.h"

namespace llm {
namespace {

constexpr std::size_t kLimit = Tokenizer::kMaxTextBytes;
constexpr std::string_view kQuotes = "\"\"\"";

class PlainReader final : public LineReader {
 public:
  explicit PlainReader(bool shows_prompt) : shows_prompt_(shows_prompt) {}

  Result<Line> read(const std::string& prompt) override {
    if (shows_prompt_) {
      write_message(prompt);
    }
    std::string line;
    std::size_t size = 0;
    while (true) {
      const std::size_t newline = buffer_.find('\n', next_);
      const std::size_t end = newline == std::string::npos ? buffer_.size() : newline;
      size += end - next_;
      // What is too long is read, so that the next line can be, and not kept.
      if (size <= kLimit) line.append(buffer_, next_, end - next_);
      next_ = end;
      if (newline != std::string::npos) {
        ++next_;
        break;
      }
      LLM_TRY(const bool more, fill());
      if (more) continue;
      if (size == 0 || GracefulInterrupt::requested()) return Line{Line::Kind::kEnd};
      break;
    }
    if (size > kLimit) {
      return Error{ErrorCode::kResource, "message",
                   fmt::format("found {} bytes, need at most {}", size, kLimit)};
    }
    return Line{Line::Kind::kText, std::move(line)};
  }

 private:
  /// @return whether bytes came: false at the end of input and after a signal
  Result<bool> fill() {
    next_ = 0;
    buffer_.resize(std::size_t{1} << 16);
    while (!GracefulInterrupt::requested()) {
      const ssize_t count = ::read(STDIN_FILENO, buffer_.data(), buffer_.size());
      if (count < 0 && errno == EINTR) continue;
      buffer_.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
      if (count >= 0) return count > 0;
      return in_file(Error{ErrorCode::kIo, "", std::strerror(errno)}, "stdin");
    }
    buffer_.clear();
    return false;
  }

  bool shows_prompt_;
  std::string buffer_;
  std::size_t next_ = 0;  ///< first byte of the buffer that was not given out
};

}  // namespace

std::unique_ptr<LineReader> make_plain_reader(bool shows_prompt) {
  return std::make_unique<PlainReader>(shows_prompt);
}

std::unique_ptr<LineReader> make_line_reader(const std::string& history_path,
                                             std::vector<std::string> commands) {
  const bool typed = isatty(STDIN_FILENO) == 1;
  if (typed && stderr_is_terminal()) return make_editing_reader(history_path, std::move(commands));
  return make_plain_reader(typed);
}

Result<Line> read_message(LineReader& reader) {
  LLM_TRY(Line line, reader.read("> "));
  if (line.kind != Line::Kind::kText || line.is_quoted) return line;
  const bool quoted = line.text == kQuotes;
  std::string message;
  // What has no end yet when the input ends is the message all the same.
  const auto ended = [&](Line& last) {
    return last.kind == Line::Kind::kEnd && !message.empty() && !GracefulInterrupt::requested();
  };
  if (quoted) {
    bool is_first = true;
    while (true) {
      LLM_TRY(line, reader.read("  "));
      if (ended(line)) break;
      if (line.kind != Line::Kind::kText) return line;
      if (line.text == kQuotes) break;
      if (!is_first) message += '\n';
      is_first = false;
      message += line.text;
    }
    return Line{Line::Kind::kText, std::move(message), true};
  }
  while (line.text.ends_with('\\')) {
    line.text.back() = '\n';
    message += line.text;
    LLM_TRY(line, reader.read("  "));
    if (ended(line)) return Line{Line::Kind::kText, std::move(message)};
    if (line.kind != Line::Kind::kText) return line;
  }
  return Line{Line::Kind::kText, message + line.text};
}

}  // namespace llm
