#pragma once

#include "tests/support/json.h"
#include "tests/tools/tool_test.h"

namespace llm::test {

/// The tiny model with ChatML's markers as tokens of that kind (3: control).
inline TinyGguf with_chatml_markers(std::int32_t kind = 3) {
  TinyGguf model = TinyGguf::llama();
  auto pieces = TinyGguf::pieces();
  auto kinds = TinyGguf::kinds();
  pieces[269] = "<|im_start|>";
  pieces[270] = "<|im_end|>";
  kinds[269] = kinds[270] = kind;
  model.set_strings("tokenizer.ggml.tokens", pieces);
  model.set_array("tokenizer.ggml.token_type", GgufType::kInt32, kinds);
  return model;
}

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
  Finished llmrun(const std::string& arguments) const { return shell("\"$LLMRUN\" " + arguments); }

  Finished shell(const std::string& command) const { return run_shell(command); }

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
