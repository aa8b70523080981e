#ifndef LLM_TESTS_TOOLS_LLMRUN_PROCESS_H_
#define LLM_TESTS_TOOLS_LLMRUN_PROCESS_H_

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/support/catch.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {

inline void write_file(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

struct Finished {
  int exit_code;  ///< 128 + signal for one that was killed, as a shell says it
  std::string out;
  std::string err;
};

/// Runs llmrun on small models through bash, so that tests can use its redirections:
/// $LLMRUN is the program, $TINY the tiny model, $DIR the scratch directory.
class Llmrun {
 public:
  Llmrun() {
    const auto bytes = TinyGguf::llama().bytes();
    write_file(directory_ / "tiny.gguf",
               {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    setenv("LLMRUN", LLM_BIN_DIR "/llmrun", 1);
    setenv("TINY", (directory_ / "tiny.gguf").c_str(), 1);
    setenv("DIR", (directory_ / "").c_str(), 1);
  }

  /// `$LLMRUN ARGUMENTS`.
  Finished operator()(const std::string& arguments) { return shell("\"$LLMRUN\" " + arguments); }

  Finished shell(const std::string& command) {
    write_file(directory_ / "command", command);
    const std::string line = "bash '" + path("command") + "' > '" + path("out") + "' 2> '" +
                             path("err") + "' < /dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            read_file(directory_ / "out"), read_file(directory_ / "err")};
  }

  std::string path(std::string_view name) const { return directory_ / name; }

 private:
  ScratchDirectory directory_;
};

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace llm::test

#endif  // LLM_TESTS_TOOLS_LLMRUN_PROCESS_H_
