// The completion scripts, asked by the shells themselves.

#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

/// What bash offers for the last word of a command line, one offer a line.
std::string bash_offers(const std::string& tool, const std::string& line) {
  const ToolFolder folder;
  const Finished result = folder
                              .shell("source <(" + tool + " --completion bash) && COMP_WORDS=(" +
                                     line + ") && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && _" +
                                     tool + " && printf '%s\\n' \"${COMPREPLY[@]}\"")
                              .must_end(0);
  CHECK(result.err.empty());
  return result.out;
}

TEST_CASE("bash offers options, their words, verbs, types and files", "[tools][completion]") {
  CHECK(bash_offers("llmgguf", "llmgguf ver") == "verify\n");
  CHECK(bash_offers("llmgguf", "llmgguf show ''") == "tiny.gguf\n");
  CHECK(bash_offers("llmgguf", "llmgguf --json ha") == "hash\n");
  CHECK(bash_offers("llmgguf", "llmgguf --vocab") == "--vocab-only\n");
  CHECK(bash_offers("llmquant", "llmquant a b Q5_K_") == "Q5_K_S\nQ5_K_M\n");
  CHECK(bash_offers("llmquant", "llmquant --tensor-type x=Q8_0 t") == "tiny.gguf\n");
  CHECK(bash_offers("llmrun", "llmrun --kv ''") == "f16\nf32\nq8\n");
  CHECK(bash_offers("llmrun", "llmrun -m t") == "tiny.gguf\n");
  CHECK(bash_offers("llmrun", "llmrun -n ''") == "\n");  // a number
}

bool has(const std::string& program) {
  if (run_shell("command -v " + program).exit_code == 0) return true;
  WARN("skipped: no " << program << " here");
  return false;
}

TEST_CASE("fish offers the same", "[tools][completion]") {
  if (!has("fish")) return;
  const auto offers = [](const std::string& tool, const std::string& line) {
    const ScratchDirectory home;
    const Finished result = run_shell("HOME='" + home.path() + "' fish -c \"'" + tool_path(tool) +
                                      "' --completion fish | source; complete -C '" + line + "'\"");
    CHECK(result.err.empty());
    return result.out;
  };
  CHECK_THAT(offers("llmgguf", "llmgguf ver"), Contains("verify"));
  CHECK_THAT(offers("llmgguf", "llmgguf verify "), !Contains("verify\t"));
  CHECK_THAT(offers("llmquant", "llmquant a b Q5_K_"), Contains("Q5_K_M") && Contains("Q5_K_S"));
  CHECK_THAT(offers("llmrun", "llmrun --kv "), Contains("f16") && Contains("f32"));
  CHECK_THAT(offers("llmrun", "llmrun --no-ca"), Contains("--no-cache\trecompute"));
}

TEST_CASE("zsh reads its scripts", "[tools][completion]") {
  if (!has("zsh")) return;
  for (const std::string tool : {"llmrun", "llmcheck", "llmquant", "llmgguf", "llmbench"}) {
    CAPTURE(tool);
    const Finished result =
        run_shell("zsh -f -c \"autoload -U compinit; compinit -u -D; source <('" + tool_path(tool) +
                  "' --completion zsh)\"")
            .must_end(0);
    CHECK(result.err.empty());
  }
}

}  // namespace
}  // namespace llm::test
