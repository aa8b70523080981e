#include "tests/tools/bad_input_support.h"

#include "engine/model/model_file.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

void check_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    INFO("text: " << text);
    INFO("word: " << word);
    CHECK(text.find(word) != std::string::npos);
  }
}

}  // namespace

void check_file(const std::string& path, int exit_code, const std::vector<std::string>& words,
                const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"verify", path};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const Finished result = run_tool("llmgguf", arguments).must_end(exit_code);
  check_words(result.err, words);
  if (exit_code != 0) {
    CHECK(result.err.starts_with("llmgguf: error: " + path + ": "));
    CHECK(result.out.empty());
  }
}

void check_row(const BadInputRow& row) {
  TinyGguf model = TinyGguf::llama();
  row.patch(model);
  const std::vector<std::byte> bytes = model.bytes();
  std::vector<std::string> words;
  for (const char* word : row.words) {
    if (word != nullptr) words.emplace_back(word);
  }
  INFO("row " << row.name);
  const auto result = open_model_bytes(bytes);
  if (row.exit_code != 0) {
    REQUIRE_FALSE(result.ok());
    CHECK(static_cast<int>(result.error().code) == row.exit_code);
    check_words(result.error().to_string(), words);
  } else {
    INFO((result.ok() ? "" : result.error().to_string()));
    REQUIRE(result.ok());
    std::string warnings;
    for (const std::string& warning : result.value().warnings) warnings += warning + "\n";
    check_words(warnings, words);
    if (words.empty()) CHECK(warnings.empty());
  }
  const ScratchDirectory directory;
  check_file(directory.write("model.gguf", bytes), row.exit_code, words);
}

}  // namespace llm::test
