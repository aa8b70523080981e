// Editing by libedit. Reading stays here: a signal must end a read, a new window size must reach
// the editor, and Ctrl-C means this line and not the program.

#include <fmt/core.h>
#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <memory>

#include "tokenizer/tokenizer.h"
#include "tools/common/log.h"
#include "tools/common/signals.h"
#include "tools/llmrun/history.h"
#include "tools/llmrun/line_reader.h"

namespace llm {
namespace {

volatile std::sig_atomic_t window_changed = 0;  // written by a handler

/// UTF-8 in the editor, also where the environment names no locale. Only the type of characters:
/// numbers keep their decimal points.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

/// Waits until a byte can be read, with no moment in which a signal goes unnoticed.
/// @return false when a signal came
bool wait_for_input() {
  sigset_t held;
  sigset_t before;
  sigemptyset(&held);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&held, signal);
  sigprocmask(SIG_BLOCK, &held, &before);
  bool is_ready = false;
  if (!GracefulInterrupt::requested() && window_changed == 0) {
    pollfd descriptor = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    is_ready = ppoll(&descriptor, 1, nullptr, &before) > 0;
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return is_ready;
}

class EditingReader final : public LineReader {
 public:
  explicit EditingReader(const std::string& history_path) : history_path_(history_path) {
    use_utf8();
    struct sigaction action = {};
    action.sa_handler = [](int) { window_changed = 1; };
    action.sa_flags = SA_RESTART;  // no write is cut short; ppoll() returns all the same
    sigaction(SIGWINCH, &action, nullptr);
    history_.reset(history_init());
    HistEvent event;
    history(history_.get(), &event, H_SETSIZE, static_cast<int>(kHistoryLines));
    history(history_.get(), &event, H_SETUNIQUE, 1);
    if (!history_path_.empty()) {
      for (const std::string& line : read_history(history_path_))
        history(history_.get(), &event, H_ENTER, line.c_str());
    }
    editor_.reset(el_init("llmrun", stdin, stderr, stderr));
    el_set(editor_.get(), EL_CLIENTDATA, this);
    el_set(editor_.get(), EL_PROMPT, &EditingReader::prompt);
    el_set(editor_.get(), EL_SIGNAL, 0);
    el_set(editor_.get(), EL_EDITOR, "emacs");
    el_set(editor_.get(), EL_HIST, history, history_.get());
    el_set(editor_.get(), EL_GETCFN, &EditingReader::read_character);
    el_set(editor_.get(), EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(editor_.get(), nullptr);
  }

  Result<Line> read(const std::string& prompt) override {
    prompt_ = prompt;
    int size = 0;
    const char* typed = el_gets(editor_.get(), &size);
    if (GracefulInterrupt::requested()) return after_signal();
    if (typed == nullptr || size <= 0) {
      write_message("\n");
      return Line{Line::Kind::kEnd};
    }
    cancelled_ = false;
    std::string line(typed, static_cast<std::size_t>(size));
    if (line.ends_with('\n')) line.pop_back();
    if (line.size() > Tokenizer::kMaxTextBytes) {
      return Error{.code = ErrorCode::kResource,
                   .field = "message",
                   .message = fmt::format("found {} bytes, need at most {}", line.size(),
                                          Tokenizer::kMaxTextBytes)};
    }
    remember(line);
    return Line{Line::Kind::kText, std::move(line)};
  }

 private:
  struct EndEditor {
    void operator()(EditLine* editor) const { el_end(editor); }
  };
  struct EndHistory {
    void operator()(History* history) const { history_end(history); }
  };

  static EditingReader& self(EditLine* editor) {
    void* data = nullptr;
    el_get(editor, EL_CLIENTDATA, &data);
    return *static_cast<EditingReader*>(data);
  }
  static char* prompt(EditLine* editor) { return self(editor).prompt_.data(); }

  /// One character for the editor: 1, 0 at the end of input, -1 after a signal.
  static int read_character(EditLine* editor, wchar_t* character) {
    std::mbstate_t state{};
    while (true) {
      if (!wait_for_input()) {
        if (GracefulInterrupt::requested()) {
          self(editor).was_empty_ = is_empty(editor);
          errno = EINTR;
          return -1;
        }
        if (window_changed != 0) {
          window_changed = 0;
          el_resize(editor);
          el_set(editor, EL_REFRESH);
        }
        continue;
      }
      char byte = 0;
      const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return static_cast<int>(count);
      const std::size_t used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<std::size_t>(-2)) continue;  // more bytes of it follow
      if (used == static_cast<std::size_t>(-1)) {
        state = std::mbstate_t{};
        continue;  // no character
      }
      return 1;
    }
  }

  static bool is_empty(EditLine* editor) {
    const LineInfo* line = el_line(editor);
    return line->lastchar == line->buffer;
  }

  /// Ctrl-C drops the line; another one behind it, with nothing typed, leaves.
  Line after_signal() {
    write_message("\n");
    if (GracefulInterrupt::exit_code() != 128 + SIGINT) return Line{Line::Kind::kEnd};
    GracefulInterrupt::clear();
    const bool leaves = was_empty_ && cancelled_;
    cancelled_ = true;
    if (leaves) return Line{Line::Kind::kEnd};
    if (was_empty_) write_message("(Ctrl-C again, or Ctrl-D, leaves)\n");
    return Line{Line::Kind::kCancelled};
  }

  void remember(const std::string& line) {
    if (line.find_first_not_of(" \t") == std::string::npos || line == last_) return;
    last_ = line;
    HistEvent event;
    history(history_.get(), &event, H_ENTER, line.c_str());
    if (!history_path_.empty() && !append_history(history_path_, line)) history_path_.clear();
  }

  std::string history_path_;
  std::unique_ptr<History, EndHistory> history_;
  std::unique_ptr<EditLine, EndEditor> editor_;
  std::string prompt_;
  std::string last_;
  bool cancelled_ = false;
  bool was_empty_ = true;
};

}  // namespace

std::unique_ptr<LineReader> make_editing_reader(const std::string& history_path) {
  return std::make_unique<EditingReader>(history_path);
}

}  // namespace llm
