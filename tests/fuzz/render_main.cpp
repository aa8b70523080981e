// fuzz_render FILE...: a line of JSON for each template, with its text or its error.

#include <cstdio>
#include <fstream>
#include <iterator>

#include "tests/fuzz/rendered_template.h"

int main(int n_arguments, char** arguments) {
  for (int i = 1; i < n_arguments; ++i) {
    std::ifstream file(arguments[i], std::ios::binary);
    const auto text = llm::fuzz::rendered({std::istreambuf_iterator<char>(file), {}});
    llm::OrderedJson line = {{"file", arguments[i]}};
    line[text.ok() ? "text" : "error"] = text.ok() ? *text : text.error().to_string();
    std::printf("%s\n", llm::json_text(line, -1, true).c_str());
  }
  return 0;
}
