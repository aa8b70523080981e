// llmrun -i on a real pseudo-terminal: what is typed, edited, interrupted and kept.

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>

#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

constexpr const char* kUp = "\x1b[A";
constexpr const char* kLeft = "\x1b[D";
constexpr const char* kCtrlC = "\x03";
constexpr const char* kCtrlD = "\x04";  // after a prompt: earlier it is the terminal's own

/// A program on a terminal of its own: what a person types and sees.
class Terminal {
 public:
  using Environment = std::map<std::string, std::string>;

  Terminal(std::vector<std::string> words, const Environment& environment) {
    winsize size = {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = forkpty(&descriptor_, nullptr, nullptr, &size);
    REQUIRE(pid_ >= 0);
    if (pid_ > 0) return;
    // A shell that started the tests in the background has them ignored.
    for (const int ignored : {SIGINT, SIGQUIT}) ::signal(ignored, SIG_DFL);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  ~Terminal() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(descriptor_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) const {
    REQUIRE(write(descriptor_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
  }

  /// Reads on until `text` has come, after what was expected before; fails after half a minute.
  void expect(const std::string& text) {
    while (screen_.find(text, seen_) == std::string::npos) {
      if (read_more()) continue;
      FAIL("found no " << text << " in " << screen_);
    }
    seen_ = screen_.find(text, seen_) + text.size();
  }

  /// What is expected and what is typed then, in turn; "" is nothing.
  void talk(const std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) i % 2 == 0 ? expect(words[i]) : type(words[i]);
  }

  /// Reads on until so many bytes have come after what was expected.
  void expect_more(std::size_t n_bytes) {
    while (screen_.size() < seen_ + n_bytes) REQUIRE(read_more());
    seen_ = screen_.size();
  }

  void resize(int columns) const {
    const winsize size = {.ws_row = 24,
                          .ws_col = static_cast<unsigned short>(columns),
                          .ws_xpixel = 0,
                          .ws_ypixel = 0};
    REQUIRE(ioctl(descriptor_, TIOCSWINSZ, &size) == 0);
  }

  void send(int signal) const { REQUIRE(kill(pid_, signal) == 0); }
  /// To what the program has started, too.
  void send_to_all(int signal) const { REQUIRE(kill(-pid_, signal) == 0); }

  /// The exit code; reads what still comes.
  int wait() {
    while (read_more()) continue;
    int status = 0;
    REQUIRE(waitpid(std::exchange(pid_, -1), &status, 0) > 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  /// What was shown, after a conversation (talk) that the program ends well.
  std::string shown(const std::vector<std::string>& words = {}) {
    talk(words);
    REQUIRE(wait() == 0);
    return screen_;
  }

  const std::string& screen() const { return screen_; }

 private:
  /// @return false at the program's end
  bool read_more() {
    pollfd waiting = {.fd = descriptor_, .events = POLLIN, .revents = 0};
    REQUIRE(poll(&waiting, 1, 30000) == 1);
    char buffer[4096];
    const ssize_t n = read(descriptor_, buffer, sizeof buffer);
    if (n <= 0) return false;
    screen_.append(buffer, static_cast<std::size_t>(n));
    return true;
  }

  int descriptor_ = -1;
  pid_t pid_ = -1;
  std::string screen_;
  std::size_t seen_ = 0;
};

constexpr const char* kReplied = "peak RSS";

class OnTerminal : public Llmrun {
 public:
  Terminal::Environment usual() const {
    return {{"TERM", "xterm"}, {"LC_ALL", "C.UTF-8"}, {"XDG_STATE_HOME", path("state")}};
  }

  /// llmrun with a model and words that have no spaces, and then `more`.
  static std::vector<std::string> llmrun_words(const std::string& model, const std::string& words,
                                               const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {tool_path("llmrun"), model};
    std::istringstream line(words);
    for (std::string word; line >> word;) all.push_back(word);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::vector<std::string> chat(const std::vector<std::string>& more = {}) const {
    return llmrun_words(path("tiny.gguf"),
                        "-i --chat-template zephyr -c 2000 -n 3 -t 1 --ignore-eos -v", more);
  }
  /// A chat that goes as these words say (Terminal::talk) and ends well. @return what was shown
  std::string talk(const std::vector<std::string>& words, const std::vector<std::string>& more = {},
                   const Terminal::Environment& changed = {}) const {
    auto environment = usual();
    for (const auto& [name, value] : changed) environment[name] = value;
    return Terminal(chat(more), environment).shown(words);
  }
};

}  // namespace

TEST_CASE_METHOD(OnTerminal, "a line can be edited, and an earlier one taken up") {
  std::string typed = "/sytem one";
  for (int i = 0; i < 7; ++i) typed += kLeft;
  const std::string earlier = std::string(kUp) + kUp + " two\r";  // the line before: /system one
  talk({"> ", typed + "s\r", "\n", "/system\r", "\none\r\n", earlier, "", "/system\r",
        "\none two\r\n", "", "> ", kCtrlD});
}

TEST_CASE_METHOD(OnTerminal, "UTF-8 is edited by characters") {
  const std::string locale = GENERATE("C.UTF-8", "C");  // C: a machine that sets no locale
  talk({"> ", "/system \xC3\xA4\xE2\x82\xAC\x7F\x7F\xC3\xB6 \xF0\x9F\x8C\x88\r", "", "/system\r",
        "\n\xC3\xB6 \xF0\x9F\x8C\x88\r\n", "/exit\r"},
       {}, {{"LC_ALL", locale}});
}

TEST_CASE_METHOD(OnTerminal, "history outlives the chat, readable by its owner alone") {
  talk({"> ", "/system kept\r/exit\r"});
  struct stat status {};
  REQUIRE(stat(path("state/llmrun/history").c_str(), &status) == 0);
  REQUIRE((status.st_mode & 0777) == 0600);
  REQUIRE(read("state/llmrun/history") == "/system kept\n/exit\n");
  talk({"> ", std::string(kUp) + kUp + "\r/system\r", "\nkept\r\n", "", "> ", kCtrlD});
  const std::string before = read("state/llmrun/history");
  talk({"> ", std::string(kUp) + "/system\r", "no system message", "/exit\r"}, {"--no-history"});
  REQUIRE(read("state/llmrun/history") == before);
}

TEST_CASE_METHOD(OnTerminal,
                 "without XDG_STATE_HOME history is in the home; without a home nowhere") {
  const std::string home = GENERATE("home", "");
  talk({"> ", "/exit\r"}, {},
       {{"XDG_STATE_HOME", home.empty() ? "relative" : ""},
        {"HOME", home.empty() ? "" : path(home)}});
  REQUIRE(std::filesystem::exists(path("home/.local/state/llmrun/history")) != home.empty());
  REQUIRE(!std::filesystem::exists("relative"));
}

TEST_CASE_METHOD(OnTerminal, "Ctrl-C drops the line, and twice leaves") {
  // What was typed before is no message; of the two Ctrl-C that leave, the x is between.
  talk({"> ",
        "some words",
        "some words",
        kCtrlC,
        "\n",
        "",
        "> ",
        "/stats\r",
        "0 turns, ",
        "",
        "> ",
        kCtrlC,
        "Ctrl-C again, or Ctrl-D, leaves",
        "",
        "> ",
        "x",
        "x",
        kCtrlC,
        "> ",
        kCtrlC});
}

TEST_CASE_METHOD(OnTerminal, "Ctrl-C drops a message of several lines") {
  talk({"> ", "\"\"\"\r", "  ", "one\r", "  ", kCtrlC, "> ", "/stats\r", "0 turns, ", "/exit\r"});
}

TEST_CASE_METHOD(OnTerminal, "Ctrl-C stops an answer, which stays in the conversation") {
  // On a dumb terminal lines are plain, and Ctrl-C means the same.
  const std::string type = GENERATE("xterm", "dumb");
  auto environment = usual();
  environment["TERM"] = type;
  Terminal terminal(chat({"-n", "-1", "--context-shift", "-q"}), environment);
  terminal.talk({"> ", "hello\r", "hello\r\n"});
  terminal.expect_more(200);
  terminal.talk({"", kCtrlC, "\n> ", "/stats\r", "1 turns, "});
  const std::size_t at = terminal.screen().rfind("1 turns, ");
  REQUIRE(std::stoi(terminal.screen().substr(at + 9)) > 40);  // tokens of message and answer
  terminal.shown({"> ", kCtrlD});
}

TEST_CASE_METHOD(OnTerminal, "a pasted text of several lines is one message, as it is") {
  const std::vector<std::string> kept = {"--session", path("session")};
  const std::string shown =
      talk({"\x1b[?2004h", "", "> ", "\x1b[200~/def f(x):\r\n\tif x: \\\r\r\t\treturn\n\x1b[201~",
            "return", ", too\r", kReplied, "", "> ", "/exit\r"},
           kept);
  REQUIRE(contains(shown, "\x1b[?2004l"));
  const std::string message = R"("/def f(x):\n\tif x: \\\n\n\t\treturn, too")";
  REQUIRE_THAT(read("session"), Contains(message));
  // It is one line of the history, too, in another chat as well.
  talk({"1 turns, ", "", "> ", std::string(kUp) + kUp + "\r", kReplied, "", "> ", "/stats\r",
        "2 turns, ", "/exit\r"},
       kept);
  const std::string session = read("session");
  REQUIRE(session.find(message) != session.rfind(message));
}

TEST_CASE_METHOD(OnTerminal, "what is typed while the model answers waits for the next line") {
  Terminal terminal(chat({"-n", "-1", "--context-shift", "-q"}), usual());
  terminal.talk({"> ", "hello\r", "hello\r\n"});
  const std::size_t answer = terminal.screen().size();
  terminal.expect_more(100);
  terminal.type("/system typed ahead");
  terminal.expect_more(400);
  REQUIRE(!contains(terminal.screen().substr(answer), "typed ahead"));
  terminal.shown({"", kCtrlC, "> ", "", "/system typed ahead", "\r/system\r", "\ntyped ahead\r\n",
                  "", "> ", kCtrlD});
}

TEST_CASE_METHOD(OnTerminal, "the terminal is as before when a signal ends the chat") {
  // A shell that looks at its terminal before and after, and does not end with the chat.
  const std::string command = "ulimit -c 0; trap : QUIT; stty -g; " + tool_path("llmrun") + " '" +
                              path("tiny.gguf") +
                              "' -i --chat-template zephyr -n -1 --context-shift --ignore-eos -t 1 "
                              "-q; echo code $?; stty -g; echo end";
  Terminal terminal({"bash", "-c", command}, usual());
  terminal.expect("\n");
  const std::string before = terminal.screen().substr(0, terminal.screen().find('\n') + 1);
  terminal.talk({"> ", "hello\r", "hello\r\n"});
  terminal.expect_more(200);
  terminal.send_to_all(SIGQUIT);
  terminal.shown({"\x1b[?2004l", "", "code 131\r\n" + before + "end"});
}

TEST_CASE_METHOD(OnTerminal,
                 "a model with a chat template and nothing else on a terminal is a chat") {
  auto model = TinyGguf::llama();
  model.set_string("tokenizer.chat_template", "{{ '<|im_start|>' }}");
  model.set_string("general.name", "Tiny \x1b[31m");
  write("chatml.gguf", model.bytes());
  const auto shown = [&](const char* file, const std::vector<std::string>& more,
                         const std::vector<std::string>& talk = {}) {
    return Terminal(llmrun_words(path(file), "-c 2000 -n 3", more), usual()).shown(talk);
  };
  shown("chatml.gguf", {},
        {"Tiny \\x1b[31m: context 2000 tokens, chat template dca49a05e648\r\n", "",
         "/help lists the commands, Ctrl-D quits\r\n", "", "> ", "/?\r", "/help, /? ", "", "> ",
         "/save " + path("saved") + "\r",
         "wrote " + path("saved") + ": 0 turns with 0 tokens evaluated\r\n", "", "> ", "/bye\r"});
  // Not with a prompt, nor where a program reads.
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"-p", "a"}, {"--json"}, {"--logits-hash"}})
    REQUIRE(!contains(shown("chatml.gguf", more), "> "));
  REQUIRE(!contains(shown("tiny.gguf", {}), "/help"));
}

TEST_CASE_METHOD(OnTerminal,
                 "an answer that repeats itself is stopped, unless -n says how long it may be") {
  auto model = TinyGguf::llama();
  std::string& output = model.tensor("output.weight").data;
  output.assign(output.size(), '\0');  // all tokens are as likely: the first is drawn for ever
  write("loop.gguf", model.bytes());
  const auto talk = [&](const std::vector<std::string>& more, const std::string& said) {
    const auto words = llmrun_words(
        path("loop.gguf"),
        "-i --chat-template zephyr -c 2000 --ignore-eos --temp 0 --repeat-penalty 1", more);
    Terminal(words, usual()).shown({"> ", "hello\r", said, "", "> ", "/exit\r"});
  };
  talk({}, "its last 256 tokens repeat the same 1; -n N");
  talk({"-n", "600", "-v"}, "decode 599 tokens");
}

TEST_CASE_METHOD(OnTerminal, "an answer's lines are broken between words") {
  const auto words = llmrun_words(kFable, "-n 60 --temp 0", {"-p", "Once upon a time"});
  REQUIRE(contains(Terminal(words, usual()).shown(), "C\x1b[K\r\n"));
  auto environment = usual();
  environment["TERM"] = "dumb";
  REQUIRE(!contains(Terminal(words, environment).shown(), "\x1b"));
}

TEST_CASE_METHOD(OnTerminal, "SIGTERM at the prompt leaves and keeps the session") {
  Terminal terminal(chat({"--session", path("session")}), usual());
  terminal.talk({"> ", "hi\r", kReplied, "", "> "});
  terminal.send(SIGTERM);
  REQUIRE(terminal.wait() == 143);
  talk({"1 turns, ", "", "> ", kCtrlD}, {"--session", path("session")});
}

TEST_CASE_METHOD(OnTerminal, "another window size does not break the line") {
  Terminal terminal(chat(), usual());
  terminal.talk({"> ", "/system a long line that is typed while ", "while"});
  for (const int columns : {30, 132, 80}) {
    terminal.resize(columns);
    terminal.expect("> ");  // drawn anew
  }
  terminal.shown({"", "the window changes\r/system\r",
                  "\na long line that is typed while the window changes\r\n", "/exit\r"});
}

TEST_CASE_METHOD(OnTerminal, "a dumb terminal gets plain lines") {
  const std::string shown = talk(
      {"> ", "/system plain\r/system\r", "> plain\r\n", "", "> ", kCtrlD}, {}, {{"TERM", "dumb"}});
  REQUIRE(!contains(shown, "\x1b"));
  REQUIRE(!std::filesystem::exists(path("state")));
}

}  // namespace llm::test
