#pragma once

#include "tests/support/json.h"
#include "tests/tools/tool_test.h"

namespace llm::test {

/// A folder with two tiny models, m.gguf and other.gguf, in which llmcheck runs on one thread.
class LlmcheckFolder : public ScratchDirectory {
 public:
  LlmcheckFolder() {
    write("m.gguf", TinyGguf::llama().bytes());
    write("other.gguf", TinyGguf::llama({.seed = 2}).bytes());
  }

  /// @param arguments  words of bash
  Finished llmcheck(const std::string& arguments) const {
    return run_shell("cd '" + path() + "' && '" + tool_path("llmcheck") + "' -t 1 " + arguments);
  }
  /// The JSON report of a run that must end with that code.
  Json report(const std::string& arguments, int exit_code = 0) const {
    llmcheck(arguments + " --report r.json").must_end(exit_code);
    return test::parse_json(read("r.json"));
  }
};

}  // namespace llm::test
