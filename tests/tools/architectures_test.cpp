// Each family of models against transformers: tiny checkpoints, frozen with its activations and
// greedy text (tests/golden/make_architectures.py), through the tools. `./dev convert --check`
// converts the same checkpoints.

#include "tests/support/json.h"
#include "tests/support/process.h"

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

TEST_CASE("a family's model agrees with transformers, tap by tap and token by token",
          "[architectures]") {
  const std::string family = GENERATE(from_range(families()));
  const std::string model = golden(family + ".gguf");
  run_tool("llmcheck", {model, "--layer-diff", golden(family + ".npz"), "-q", "-t", "1"})
      .must_end(0);
  const auto expected = test::parse_json(read_file(golden(family + ".json")));
  const std::string prompt = expected["prompt"];
  const auto finished =
      run_tool("llmrun", {model, "-p", prompt, "-n", "64", "--temp", "0", "-t", "1", "--ignore-eos",
                          "--compute", "f32", "--kv", "f32", "--json"})
          .must_end(0);
  const auto out = test::parse_json(finished.out);
  CHECK(out["prompt_ids"] == expected["prompt_ids"]);
  CHECK(out["ids"] == expected["greedy"]);
}

TEST_CASE("--self passes on a family's model", "[architectures]") {
  // Paths of several threads are among the checks whatever -t is; one alone takes half of the time.
  const std::string family = GENERATE(from_range(families()));
  // Those whose operators others have, and which all would take minutes of a CPU.
  constexpr std::array kLeftOut = {"gemma4",
                                   "llama-bpe",
                                   "mistral",
                                   "mistral-window",
                                   "qwen2",
                                   "qwen3",
                                   "qwen3.5",
                                   "qwen3moe",
                                   "qwen3next",
                                   "granitemoe",
                                   "ernie4.5",
                                   "seed-oss",
                                   "glm4",
                                   "exaone4",
                                   "olmo3",
                                   "lfm2",
                                   "ministral3",
                                   "glm4moe",
                                   "minimax-m2",
                                   "olmoe",
                                   "hunyuanmoe",
                                   "qwen2moe",
                                   "granitemoeshared",
                                   "qwen2vl",
                                   "qwen3vl",
                                   "qwen3vlmoe",
                                   "dots1",
                                   "ernie4.5moe",
                                   "gemma3",
                                   "granite",
                                   "granitehybrid"};
  if (std::ranges::find(kLeftOut, family) != kLeftOut.end()) return;
  run_tool("llmcheck", {golden(family + ".gguf"), "--self", "-q", "-t", "1"}).must_end(0);
}

}  // namespace llm::test
