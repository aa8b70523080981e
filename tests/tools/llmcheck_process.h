#pragma once

#include "engine/model/model_file.h"
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

  /// Command lines that are refused, each with exit code and words on stderr.
  void must_refuse(const std::vector<std::tuple<std::string, int, std::string>>& rows) const {
    for (const auto& [arguments, code, words] : rows)
      llmcheck(arguments).must_refuse(code, {words});
  }

  mutable std::string out;  ///< of the last report
};

/// The embedded F16 model with `mask` over every second one of the bytes [first, last) of a layer's
/// ffn_gate.
inline std::string damaged_model(std::size_t layer, std::size_t first, std::size_t last,
                                 char mask) {
  auto file = require_ok(open_model_file(kFableF16));
  std::string bytes = read_file(kFableF16);
  const auto tensor = file.tensors.layers[layer].ffn_gate.data;
  const auto start = static_cast<std::size_t>(tensor.data() - file.file.bytes().data());
  for (std::size_t i = first; i < std::min(last, tensor.size()); i += 2)
    bytes[start + i] = static_cast<char>(bytes[start + i] ^ mask);
  return bytes;
}

}  // namespace llm::test
