#ifndef LLM_TESTS_TOOLS_BAD_INPUT_SUPPORT_H_
#define LLM_TESTS_TOOLS_BAD_INPUT_SUPPORT_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/scratch_directory.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {

struct ProcessResult {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal = 0;
  std::string out;
  std::string err;
  long peak_rss_kib = 0;
};

/// A program of this build, running with its output going to files.
class ToolProcess {
 public:
  /// @param tool  its name in bin/
  ToolProcess(const std::string& tool, const std::vector<std::string>& arguments);
  pid_t pid() const { return pid_; }
  /// What it has written to stdout so far.
  std::string output_so_far() const;
  /// Waits for it. One that runs for more than ten minutes hangs: it is killed.
  ProcessResult wait();

 private:
  ScratchDirectory directory_;
  pid_t pid_ = -1;
};

ProcessResult run_tool_process(const std::string& tool, const std::vector<std::string>& arguments);

/// One fault of docs/bad_input.md. Constant data: tables of it cost nothing to compile.
struct BadInputRow {
  const char* name;  ///< number and fault
  int exit_code;
  /// All of them (up to the first absent one) stand in the error, or in a warning of code 0.
  std::array<const char*, 4> words;
  void (*patch)(TinyGguf&);
};

/// Patches a small model and checks code and words twice: of open_model_bytes(), and of
/// `llmgguf verify` on a file (where the message must also name program and file).
void check_row(const BadInputRow& row);

/// The same for a file that is there already; the library is not called.
void check_file(const std::string& path, int exit_code, const std::vector<std::string>& words,
                const std::vector<std::string>& flags = {});

}  // namespace llm::test

#endif  // LLM_TESTS_TOOLS_BAD_INPUT_SUPPORT_H_
