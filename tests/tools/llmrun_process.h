#pragma once

#include "tests/support/json.h"
#include "tests/tools/tool_test.h"

namespace llm::test {

/// The tiny model with ChatML's markers as tokens of that kind (3: control).
inline TinyGguf with_chatml_markers(std::int32_t kind = 3) {
  TinyGguf model = TinyGguf::llama();
  model.set_pieces({{269, "<|im_start|>"}, {270, "<|im_end|>"}}, kind);
  return model;
}

class Llmrun : public ToolFolder {
 public:
  /// Runs llmrun on one thread, or as many as -t says: more would wait for each other in vain.
  /// @param arguments  words of bash, with its redirections
  Finished llmrun(const std::string& arguments) const { return shell("llmrun -t 1 " + arguments); }
  /// What a run prints that must end well.
  Json json_of(const std::string& arguments) const {
    return test::parse_json(llmrun(arguments).must_end(0).out);
  }
};

/// The JSON of each line.
inline std::vector<Json> json_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<Json> objects;
  for (std::string line; std::getline(stream, line);) objects.push_back(test::parse_json(line));
  return objects;
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace llm::test
