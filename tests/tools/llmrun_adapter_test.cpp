// llmrun --lora: what the option says reaches the engine, and what does not fit is refused.

#include "tests/support/tiny_adapter.h"
#include "tests/support/tiny_model.h"
#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

class LlmrunAdapter : public Llmrun {
 public:
  LlmrunAdapter() {
    write("m.gguf", gguf_.bytes());
    for (std::uint64_t seed : {1, 2}) {
      const TinyGguf adapter = tiny_adapter(*model_, {.seed = seed});
      write(fmt::format("{}.gguf", seed), adapter.bytes());
    }
  }

  /// The hash of all logits of a run.
  std::string hash(const std::string& options) {
    const Finished run = llmrun("m.gguf -p 'a tiny hen' --ignore-eos -n 8 --temp 0 -q "
                                "--logits-hash " + options).must_end(0);
    return run.err;
  }

  TinyGguf gguf_ = with_chatml_markers();
  std::shared_ptr<const Model> model_ = loaded(gguf_);
};

}  // namespace

TEST_CASE_METHOD(LlmrunAdapter, "--lora takes files and scales, and llama.cpp's spelling") {
  const std::string plain = hash("");
  const std::string one = hash("--lora 1.gguf");
  REQUIRE(one != plain);
  REQUIRE(hash("--lora 1.gguf:1") == one);
  REQUIRE(hash("--lora-scaled 1.gguf:1.0") == one);
  REQUIRE(hash("--lora 1.gguf:0") == plain);
  REQUIRE(hash("--lora 1.gguf:0.5") != one);
  REQUIRE(hash("--lora 2.gguf") != one);
  const std::string both = hash("--lora 1.gguf --lora 2.gguf:-1");
  REQUIRE(both != one);
  REQUIRE(hash("--lora 1.gguf --lora 2.gguf:-1 --speculate ngram") == both);
  REQUIRE(hash("--lora 1.gguf --lora 2.gguf:-1 --no-cache") == both);
  const Json json = json_of("m.gguf -p a -n 1 --json -q --lora 1.gguf --lora 2.gguf:0.5");
  REQUIRE(json["stats"]["adapters"][1] == Json{{"file", "2.gguf"}, {"scale", 0.5}});
  write("1:2.gguf", tiny_adapter(*model_).bytes());
  REQUIRE(hash("--lora 1:2.gguf") == one);
}

TEST_CASE_METHOD(LlmrunAdapter, "a KV cache on disk is of the adapters") {
  const std::string text = "-p 'Once upon a time there was a tiny hen who lived in a house' -n 4 "
                           "--temp 0 --ignore-eos -q --cache-dir kv ";
  const auto run = [&](const std::string& options) {
    return llmrun("m.gguf " + text + options).must_end(0).out;
  };
  const std::string plain = run("");
  const std::string one = run("--lora 1.gguf");
  REQUIRE(run("--lora 1.gguf") == one);
  REQUIRE(run("") == plain);
  REQUIRE(llmrun("m.gguf " + text + "--lora 1.gguf --no-cache").exit_code == 2);
}

TEST_CASE_METHOD(LlmrunAdapter, "a saved session is continued with its adapters alone") {
  const std::string chat = "m.gguf -i --chat-template chatml -n 4 -q --session s.json ";
  llmrun(chat + "--lora 1.gguf:0.5 <<< hello").must_end(0);
  llmrun(chat + "--lora 1.gguf:0.5 <<< hello").must_end(0);
  llmrun(chat + "<<< hello").must_end(8, {"--lora: found a conversation with the adapters",
                                          " at 0.5, need one with none"});
  llmrun(chat + "--lora 1.gguf <<< hello").must_end(8, {" at 0.5, need one with ", " at 1"});
}

TEST_CASE_METHOD(LlmrunAdapter, "what does not go with an adapter is refused by name") {
  llmrun("m.gguf -p a --lora 1.gguf --receipt r.json")
      .must_end(2, {"--receipt: found with --lora"});
  llmrun("m.gguf -p a --lora 1.gguf --dump-layers d.npz")
      .must_end(2, {"--dump-layers: found with --lora"});
  llmrun("m.gguf -p a --lora 1.gguf:inf").must_end(2, {"--lora: found \"1.gguf:inf\""});
  llmrun("m.gguf -p a --lora none.gguf").must_end(4, {"none.gguf"});
  llmrun("m.gguf -p a --lora m.gguf").must_end(6, {"m.gguf: general.type", "need \"adapter\""});
  // An adapter as the model.
  llmrun("1.gguf -p a").must_end(3);
}

}  // namespace llm::test
