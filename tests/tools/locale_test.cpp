// Nothing that the tools read or print depends on the locale, even where some library sets it: all
// numbers are parsed and formatted without it. German has decimal commas.

#include <cstdio>

#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

const std::string kModel = LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf";

/// Assignments that put a program into a German locale, made here without root; nothing when the
/// system lacks the sources of locales.
std::optional<std::string> german(const ScratchDirectory& directory) {
  const Finished made =
      run_shell("localedef -i de_DE -f UTF-8 --no-archive '" + directory / "" + "/de_DE.UTF-8'");
  if (made.exit_code != 0) {
    std::cerr << "SKIPPED: a German locale (localedef: " << made.err << ")\n";
    return std::nullopt;
  }
  return "LOCPATH='" + directory / "" + "' LC_ALL=de_DE.UTF-8 LD_PRELOAD='" LLM_SET_LOCALE "' ";
}

}  // namespace

TEST_CASE("numbers are read and written alike in every locale", "[locale]") {
  const ScratchDirectory directory;
  const auto environment = german(directory);
  if (!environment) return;
  // What would be caught: printf and strtod take the decimal comma here.
  const Finished control = run_shell(*environment + LLM_PRINT_IN_LOCALE);
  CHECK(control.out == "0,500000 0,000000\n");
  const std::vector<std::string> commands = {
      "llmrun " + kModel +
          " -p Once -n 12 --temp 3.5 --top-p 0.95 -s 1 --json --logprobs 2 -q -t 1 | "
          "grep -v -e _ms -e _per_s -e p50 -e p99 -e rss",
      "llmcheck " + kModel + " --ppl " LLM_SOURCE_DIR "/models/heldout.txt --ppl-sample 2 -t 1",
      "llmgguf show " + kModel, "llmgguf show --json " + kModel,
      "llmcheck " LLM_SOURCE_DIR "/models/fable-3m-f16.gguf --layer-diff " LLM_SOURCE_DIR
      "/tests/validate/reference/npz/embedded_hf.npz -t 1 --compute f32"};
  for (const std::string& command : commands) {
    const std::string line = tool_path(command);
    const Finished plain = run_shell("LC_ALL=C " + line).must_end(0);
    const Finished commas = run_shell(*environment + line).must_end(0);
    CHECK(commas.out == plain.out);
    CHECK(plain.out.find('.') != std::string::npos);
  }
}

}  // namespace llm::test
