#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <source_location>

#include "tests/support/test.h"

namespace llm::test {

/// What a process left.
struct Finished {
  int exit_code = 0;  ///< 128 + signal for one that a signal ended, as a shell says it
  std::string out;
  std::string err;
  long peak_rss_kib = 0;
  std::string command;

  /// Itself, seen to have ended with `code`, with all of these words on stderr and on stdout.
  Finished must_end(int code, Words on_err = {}, Words on_out = {},
                    std::source_location where = std::source_location::current()) const {
    INFO(where.file_name() << ':' << where.line() << ": " << command << '\n' << err);
    REQUIRE(exit_code == code);
    require_words(err, on_err);
    require_words(out, on_out);
    return *this;
  }
  /// The same with nothing on stdout.
  Finished must_refuse(int code, Words on_err = {},
                       std::source_location where = std::source_location::current()) const {
    must_end(code, on_err, {}, where);
    INFO(command << '\n' << out);
    REQUIRE(out.empty());
    return *this;
  }
};

/// A program, running with its output going to files and its input from one.
class Process {
 public:
  /// @param words  the program (its path, or a name to look up) and its arguments
  /// @param input  path of what it reads
  explicit Process(std::vector<std::string> words, const std::string& input = "/dev/null") {
    for (const std::string& word : words) command_ += word + ' ';
    // timeout(1) ends one that hangs, with code 137.
    const std::vector<std::string> guard = {"timeout", "--foreground", "--signal=KILL", "3600"};
    words.insert(words.begin(), guard.begin(), guard.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    const std::string out = directory_ / "out";
    const std::string err = directory_ / "err";
    posix_spawn_file_actions_addopen(&actions, 0, input.c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), kFlags, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), kFlags, 0600);
    // The kernel counts the peak of this process as one of its children: proc(5) resets it.
    std::ofstream("/proc/self/clear_refs") << 5;
    const int failed = ::posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    REQUIRE(failed == 0);
  }

  /// The program's own; 0 before it has begun and after it has ended.
  pid_t pid() const {
    const std::string guard = std::to_string(pid_);
    std::ifstream children("/proc/" + guard + "/task/" + guard + "/children");
    pid_t child = 0;
    children >> child;
    return child;
  }
  bool is_running() const {
    std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
    std::string id;
    std::string name;
    std::string state;
    return stat >> id >> name >> state && state != "Z";
  }

  /// Sends it a signal; not through timeout(1), which loses one that comes right after its fork.
  void send(int signal) const {
    const pid_t program = pid();
    REQUIRE(program > 0);
    REQUIRE(::kill(program, signal) == 0);
  }

  std::string output_so_far() const { return directory_.read("out"); }

  Finished wait() {
    int status = 0;
    struct rusage usage {};
    REQUIRE(::wait4(pid_, &status, 0, &usage) == pid_);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            directory_.read("out"), directory_.read("err"), usage.ru_maxrss, command_};
  }

 private:
  ScratchDirectory directory_;
  std::string command_;
  pid_t pid_ = -1;  ///< of timeout(1), whose only child the program is
};

/// Where the tools are: this build's, or what LLM_TOOLS names (tests/tools/disconnect.py).
inline std::string tools_folder() {
  const char* folder = std::getenv("LLM_TOOLS");
  return folder != nullptr ? folder : LLM_BIN_DIR;
}
inline std::string tool_path(const std::string& tool) { return tools_folder() + "/" + tool; }

/// Runs a tool of this build to its end.
inline Finished run_tool(const std::string& tool, std::vector<std::string> arguments,
                         const std::string& input = "/dev/null") {
  arguments.insert(arguments.begin(), tool_path(tool));
  return Process(std::move(arguments), input).wait();
}

/// Runs a command of bash to its end, for its redirections and jobs.
inline Finished run_shell(const std::string& command) {
  const ScratchDirectory directory;  // of a file: arguments are limited to 128 KiB
  Finished finished = Process({"bash", directory.write("command", command)}).wait();
  finished.command = command;
  return finished;
}

}  // namespace llm::test
