#pragma once

// What tests of the tools have in common: the tools' processes, scratch folders, small models.

#include "tests/support/process.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {

/// The embedded model, and the one that it was quantized from.
inline const std::string kFable = LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf";
inline const std::string kFableF16 = LLM_SOURCE_DIR "/models/fable-3m-f16.gguf";

/// A folder with a tiny model, tiny.gguf, in which bash runs commands and finds the tools by name.
class ToolFolder : public ScratchDirectory {
 public:
  ToolFolder() { write("tiny.gguf", TinyGguf::llama().bytes()); }

  Finished shell(const std::string& command) const {
    return run_shell("cd '" + path() + "' && PATH='" + tools_folder() + "':$PATH\n" + command);
  }
};

}  // namespace llm::test
