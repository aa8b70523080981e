// Each family of models against transformers: tiny checkpoints, frozen with its activations and
// greedy text (tests/golden/make_architectures.py), through the converter and the tools.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "tests/support/json.h"
#include "tests/tools/oracle_process.h"

namespace llm::test {
namespace {

std::string golden(const std::string& name) {
  return LLM_SOURCE_DIR "/tests/golden/architectures/" + name;
}

/// All that are frozen.
std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(golden("")))
    if (file.path().extension() == ".gguf") names.push_back(file.path().stem().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace

TEST_CASE("every tap of a family's model agrees with transformers", "[architectures]") {
  const std::string family = GENERATE(from_range(families()));
  CAPTURE(family);
  const auto finished = run_tool("llmcheck", {golden(family + ".gguf"), "--layer-diff",
                                              golden(family + ".npz"), "-q", "-t", "2"});
  INFO(finished.out << finished.err);
  CHECK(finished.exit_code == 0);
}

TEST_CASE("a family's model goes on as transformers does", "[architectures]") {
  const std::string family = GENERATE(from_range(families()));
  CAPTURE(family);
  const auto expected = test::parse_json(read_file(golden(family + ".json")));
  const auto finished =
      run_tool("llmrun",
               {golden(family + ".gguf"), "-p", expected["prompt"].get<std::string>(), "-n", "64",
                "--temp", "0", "--ignore-eos", "--compute", "f32", "--kv", "f32", "--json"})
          .must_end(0);
  const auto out = test::parse_json(finished.out);
  CHECK(out["prompt_ids"] == expected["prompt_ids"]);
  CHECK(out["ids"] == expected["greedy"]);
}

TEST_CASE("--self passes on a family's model", "[architectures]") {
  const std::string family = GENERATE(from_range(families()));
  CAPTURE(family);
  // Paths of several threads are among the checks whatever -t is; one alone takes half of the time.
  const auto finished = run_tool("llmcheck", {golden(family + ".gguf"), "--self", "-q", "-t", "1"});
  INFO(finished.out << finished.err);
  CHECK(finished.exit_code == 0);
}

TEST_CASE("a family's checkpoint is converted to the frozen GGUF", "[architectures]") {
  if (!oracle_available()) return;
  const std::string family = GENERATE(from_range(families()));
  CAPTURE(family);
  const ScratchDirectory scratch;
  const std::string out = scratch / "model.gguf";
  REQUIRE(run(fmt::format("'{}' '{}/tools/convert/hf_to_gguf.py' '{}' -o '{}'", python(),
                          LLM_SOURCE_DIR, golden(family), out)) == 0);
  const auto differs = run_tool("llmgguf", {"diff", out, golden(family + ".gguf")});
  INFO(differs.out << differs.err);
  CHECK(differs.exit_code == 0);
}

TEST_CASE("the converter passes its own checks", "[architectures]") {
  if (!oracle_available()) return;
  const auto finished =
      run_shell(fmt::format("'{}' '{}/tools/convert/selftest.py'", python(), LLM_SOURCE_DIR));
  INFO(finished.out << finished.err);
  CHECK(finished.exit_code == 0);
}

}  // namespace llm::test
