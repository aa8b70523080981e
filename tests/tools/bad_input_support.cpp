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

void check_rows(std::span<const BadInputRow> rows) {
  const ScratchDirectory directory;
  for (const BadInputRow& row : rows) {
    INFO("row " << row.name);
    TinyGguf model = TinyGguf::llama();
    row.patch(model);
    const std::vector<std::byte> bytes = model.bytes();
    const auto end = std::ranges::find(row.words, nullptr);
    const std::vector<std::string> words(row.words.begin(), end);
    const auto result = open_model_bytes(bytes);
    const int code = result.ok() ? 0 : static_cast<int>(result.error().code);
    std::string said = result.ok() ? "" : result.error().to_string();
    if (result.ok())
      for (const std::string& warning : result->warnings) said += warning + "\n";
    INFO(said);
    CHECK(code == row.exit_code);
    check_words(said, words);
    if (code == 0 && words.empty()) CHECK(said.empty());
    check_file(directory.write("model.gguf", bytes), row.exit_code, words);
  }
}

}  // namespace llm::test
