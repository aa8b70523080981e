// Editing by libedit. Reading stays here: a signal must end a read, a new window size must reach
// the editor, and Ctrl-C means this line and not the program.

#include <fmt/core.h>
#include <histedit.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tools/common/log.h"
#include "tools/common/signals.h"
#include "tools/llmrun/line_reader.h"

namespace llm {
namespace {

volatile std::sig_atomic_t window_changed = 0;  // written by a handler

constexpr std::string_view kPasteBegins = "\x1b[?2004h";
constexpr std::string_view kPasteEnds = "\x1b[?2004l";
constexpr std::string_view kEndOfPaste = "\x1b[201~";

termios usual_mode;  // of the terminal, before any reader; read by a handler

void send(std::string_view sequence) {
  [[maybe_unused]] const auto ignored = write(STDERR_FILENO, sequence.data(), sequence.size());
}

/// Gives the terminal back as it was.
void restore_terminal() {
  send(kPasteEnds);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &usual_mode);
}

/// While no line is read: keys are kept for the next one and not shown, but for those that send
/// signals. A canonical terminal would show them in the middle of an answer, and lose what is
/// longer than its line.
void keep_keys() {
  termios mode = usual_mode;
  mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  mode.c_lflag |= NOFLSH;
  mode.c_iflag &= ~static_cast<tcflag_t>(ICRNL);
  mode.c_cc[VMIN] = 1;
  mode.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &mode);
}

/// What terminals send for line ends becomes \n; no NUL; no last line end.
std::string pasted_text(std::string text) {
  std::string clean;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    if (text[i] != '\0') clean += text[i] == '\r' ? '\n' : text[i];
  }
  if (clean.ends_with('\n')) clean.pop_back();
  return clean;
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
  EditingReader(const std::string& history_path, std::vector<std::string> commands)
      : history_path_(history_path), commands_(std::move(commands)) {
    tcgetattr(STDIN_FILENO, &usual_mode);
    set_exit_hook(restore_terminal);
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
    el_set(editor_.get(), EL_SETTY, "-d", "-icrnl", "-inlcr",
           nullptr);  // a pasted \r\n is one line end
    el_set(editor_.get(), EL_EDITOR, "emacs");
    el_set(editor_.get(), EL_HIST, history, history_.get());
    el_set(editor_.get(), EL_GETCFN, &EditingReader::read_character);
    el_set(editor_.get(), EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(editor_.get(), nullptr);
    // Behind ~/.editrc, which may have taken other keys.
    el_set(editor_.get(), EL_ADDFN, "llmrun-paste", "take pasted text as it is",
           &EditingReader::paste);
    el_set(editor_.get(), EL_BIND, "\\e[200~", "llmrun-paste", nullptr);
    el_set(editor_.get(), EL_ADDFN, "llmrun-complete", "complete a command or a path",
           &EditingReader::complete);
    el_set(editor_.get(), EL_BIND, "^I", "llmrun-complete", nullptr);
    send(kPasteBegins);
    keep_keys();
  }
  ~EditingReader() override {
    editor_.reset();
    set_exit_hook(nullptr);
    restore_terminal();
  }
  EditingReader(const EditingReader&) = delete;
  EditingReader& operator=(const EditingReader&) = delete;

  Result<Line> read(const std::string& prompt) override {
    prompt_ = prompt;
    el_set(editor_.get(), EL_PREP_TERM, 1);  // before the prompt: keys typed then are the editor's
    int size = 0;
    const char* typed = el_gets(editor_.get(), &size);
    keep_keys();
    if (GracefulInterrupt::requested()) return after_signal();
    if (typed == nullptr || size <= 0) {
      write_message("\n");
      return Line{Line::Kind::kEnd};
    }
    cancelled_ = false;
    std::string line(typed, static_cast<std::size_t>(size));
    if (line.ends_with('\n')) line.pop_back();
    if (line.size() > Tokenizer::kMaxTextBytes) {
      return Error{
          ErrorCode::kResource, "message",
          fmt::format("found {} bytes, need at most {}", line.size(), Tokenizer::kMaxTextBytes)};
    }
    remember(line);
    const bool is_pasted = line.find('\n') != std::string::npos;
    return Line{Line::Kind::kText, std::move(line), is_pasted};
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

  /// One byte from the terminal: 1, 0 at the end of input, -1 after a signal.
  static int read_byte(EditLine* editor, char& byte) {
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
      const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
      if (count < 0 && errno == EINTR) continue;
      return static_cast<int>(count);
    }
  }

  /// One character for the editor; as read_byte().
  static int read_character(EditLine* editor, wchar_t* character) {
    std::mbstate_t state{};
    while (true) {
      char byte = 0;
      if (const int count = read_byte(editor, byte); count <= 0) return count;
      const std::size_t used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<std::size_t>(-2)) continue;  // more bytes of it follow
      if (used == static_cast<std::size_t>(-1)) {
        state = std::mbstate_t{};
        continue;  // no character
      }
      return 1;
    }
  }

  /// Behind what announces a paste (kPasteBegins): all of it goes into the line, line ends and tabs
  /// included.
  static unsigned char paste(EditLine* editor, int) {
    std::string text;
    for (char byte = 0; !text.ends_with(kEndOfPaste) && read_byte(editor, byte) > 0;) text += byte;
    if (!text.ends_with(kEndOfPaste)) return CC_NORM;  // the signal or the end comes again
    text.resize(text.size() - kEndOfPaste.size());
    return el_insertstr(editor, pasted_text(std::move(text)).c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  /// Completes the command that the line consists of so far, else the path before the cursor.
  static unsigned char complete(EditLine* editor, int key) {
    const LineInfo* line = el_line(editor);
    const std::string typed(line->buffer, line->cursor);
    if (!typed.starts_with('/') || typed.find_first_of(" /", 1) != std::string::npos)
      return _el_fn_complete(editor, key);
    std::string all;
    std::string common;
    for (const std::string& command : self(editor).commands_) {
      if (!command.starts_with(typed)) continue;
      if (all.empty()) common = command + ' ';
      const auto differ = std::ranges::mismatch(common, command);
      if (!all.empty()) common.erase(differ.in1, common.end());
      all += command + "  ";
    }
    if (all.empty()) return CC_ERROR;
    if (common.size() > typed.size())
      return el_insertstr(editor, common.c_str() + typed.size()) == 0 ? CC_REFRESH : CC_ERROR;
    write_message(fmt::format("\n{}\n", all));
    return CC_REDISPLAY;
  }

  static bool is_empty(EditLine* editor) {
    const LineInfo* line = el_line(editor);
    return line->lastchar == line->buffer;
  }

  /// Ctrl-C drops the line; another one after it, with nothing typed, leaves.
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
  std::vector<std::string> commands_;
  std::unique_ptr<History, EndHistory> history_;
  std::unique_ptr<EditLine, EndEditor> editor_;
  std::string prompt_;
  std::string last_;
  bool cancelled_ = false;
  bool was_empty_ = true;
};

}  // namespace

std::unique_ptr<LineReader> make_editing_reader(const std::string& history_path,
                                                std::vector<std::string> commands) {
  return std::make_unique<EditingReader>(history_path, std::move(commands));
}

}  // namespace llm
