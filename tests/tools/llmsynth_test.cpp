#include "tests/tools/open_gguf.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

class Synth : public ScratchDirectory {
 public:
  std::string make(const std::string& name, const std::string& options) const {
    run_shell(tool_path("llmsynth") + " '" + path(name) + "' " + options).must_end(0);
    return path(name);
  }
};

TEST_CASE("shape and type are those asked for, and the model runs", "[tools][llmsynth]") {
  const Synth synth;
  const std::string path = synth.make("a.gguf", "--shape odd80 --type Q8_0");
  const OpenGguf model(path);
  CHECK(*model->get_unsigned_or("llama.attention.key_length", 0) == 80);
  CHECK(model->find_tensor("blk.0.attn_q.weight")->type == WeightType::kQ8_0);
  run_tool("llmrun", {path, "-p", "a", "-n", "2", "--ignore-eos"}).must_end(0);
}

TEST_CASE("shapes of other architectures have their tensors and vocabulary, and run",
          "[tools][llmsynth]") {
  const Synth synth;
  const std::string qwen2 = synth.make("qwen2", "--shape qwen2-small --type Q4_0");
  const std::string qwen3 = synth.make("qwen3", "--shape qwen3-small --type Q4_0");
  const OpenGguf with_biases(qwen2);
  const OpenGguf with_norms(qwen3);
  CHECK(with_biases->find_tensor("blk.1.attn_k.bias")->n_elements == 64);
  CHECK(with_norms->find_tensor("blk.1.attn_k_norm.weight")->n_elements == 48);
  CHECK(*with_norms->get_string("tokenizer.ggml.pre") == "qwen2");
  for (const std::string& path : {qwen2, qwen3}) {
    run_tool("llmrun", {path, "-p", "a", "-n", "2", "--ignore-eos"}).must_end(0);
  }
}

TEST_CASE("the seed makes the weights, the threads do not", "[tools][llmsynth]") {
  const Synth synth;
  const std::string options = "--shape odd80 --type Q4_0 ";
  const auto first = read_file(synth.make("a", options + "-s 5 -t 1"));
  CHECK(read_file(synth.make("b", options + "-s 5 -t 2")) == first);
  CHECK(read_file(synth.make("c", options + "-s 6 -t 1")) != first);
  CHECK(read_file(synth.make("d", options + "--seed 5")) == first);
}

TEST_CASE("what llmsynth does not know is refused", "[tools][llmsynth]") {
  const Synth synth;
  const auto refused = [&](std::vector<std::string> options, const std::string& words) {
    options.insert(options.begin(), synth.path("out"));
    run_tool("llmsynth", options).must_end(2, {words});
    CHECK(synth.count() == 0);
  };
  refused({"--shape", "cube"}, "--shape: found \"cube\", need one of tinyllama");
  refused({"--type", "Q9"}, "--type: found \"Q9\"");
  refused({"--threads", "-1"}, "--threads: found \"-1\", need an integer in 0..1024");
}

}  // namespace
}  // namespace llm::test
