#include "tests/tools/bad_input_support.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/model/model_file.h"
#include "tests/support/catch.h"

extern char** environ;

namespace llm::test {
namespace {

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void check_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    INFO("text: " << text);
    INFO("word: " << word);
    CHECK(text.find(word) != std::string::npos);
  }
}

}  // namespace

ToolProcess::ToolProcess(const std::string& tool, const std::vector<std::string>& arguments) {
  // timeout(1) ends a tool that hangs; its exit code is then 137.
  std::vector<std::string> words = {"timeout", "--signal=KILL", "600",
                                    std::string(LLM_BIN_DIR) + "/" + tool};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
  const std::string out = directory_.path("out");
  const std::string err = directory_.path("err");
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), kFlags, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), kFlags, 0600);
  const int failed = ::posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  REQUIRE(failed == 0);
}

std::string ToolProcess::output_so_far() const { return read_all(directory_.path("out")); }

ProcessResult ToolProcess::wait() {
  int status = 0;
  struct rusage usage {};
  REQUIRE(::wait4(pid_, &status, 0, &usage) == pid_);
  ProcessResult result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.out = read_all(directory_.path("out"));
  result.err = read_all(directory_.path("err"));
  result.peak_rss_kib = usage.ru_maxrss;
  return result;
}

ProcessResult run_tool_process(const std::string& tool, const std::vector<std::string>& arguments) {
  return ToolProcess(tool, arguments).wait();
}

void check_file(const std::string& path, int exit_code, const std::vector<std::string>& words,
                const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"verify", path};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const ProcessResult result = run_tool_process("llmgguf", arguments);
  INFO("stderr: " << result.err);
  CHECK(result.signal == 0);
  CHECK(result.exit_code == exit_code);
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
