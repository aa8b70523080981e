#pragma once

#include "tests/support/json.h"
#include "tests/tools/tool_test.h"

namespace llm::test {

/// A folder with two tiny models, tiny.gguf and other.gguf, in which llmcheck runs on one thread.
class LlmcheckFolder : public ToolFolder {
 public:
  LlmcheckFolder() { write("other.gguf", TinyGguf::llama({.seed = 2}).bytes()); }

  /// @param arguments  words of bash
  Finished llmcheck(const std::string& arguments) const {
    return shell("llmcheck -t 1 " + arguments);
  }
  /// The JSON report of a run that must end with that code, with all of these words on stdout.
  Json report(const std::string& arguments, int exit_code = 0, Words on_out = {}) const {
    out = llmcheck(arguments + " --report r.json").must_end(exit_code, {}, on_out).out;
    return test::parse_json(read("r.json"));
  }

  mutable std::string out;  ///< of the last report
};

}  // namespace llm::test
