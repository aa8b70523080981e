#ifndef LLM_TESTS_TOOLS_LLMRUN_PROCESS_H_
#define LLM_TESTS_TOOLS_LLMRUN_PROCESS_H_

#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/support/process.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {

/// Runs llmrun on small models through bash, so that tests can use its redirections:
/// $LLMRUN is the program, $TINY the tiny model, $DIR the scratch directory.
class Llmrun {
 public:
  Llmrun() {
    directory_.write("tiny.gguf", TinyGguf::llama().bytes());
    setenv("LLMRUN", tool_path("llmrun").c_str(), 1);
    setenv("TINY", (directory_ / "tiny.gguf").c_str(), 1);
    setenv("DIR", (directory_ / "").c_str(), 1);
  }

  /// `$LLMRUN ARGUMENTS`.
  Finished operator()(const std::string& arguments) { return shell("\"$LLMRUN\" " + arguments); }

  Finished shell(const std::string& command) { return run_shell(command); }

  std::string path(std::string_view name) const { return directory_ / name; }
  /// A file that $DIR/name names.
  template <typename Content>
  void write(std::string_view name, const Content& content) const {
    directory_.write(name, content);
  }

 private:
  ScratchDirectory directory_;
};

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace llm::test

#endif  // LLM_TESTS_TOOLS_LLMRUN_PROCESS_H_
