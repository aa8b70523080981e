// Every question of llmcheck but --self on a tiny model, right and wrong answers: fast enough to be
// asked with sanitizers too.

#include "base/json.h"
#include "base/sha256.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

class Bench {
 public:
  Bench() {
    const auto bytes = TinyGguf::llama().bytes();
    sha256_ = sha256_hex(bytes);
    folder_.write("m.gguf", bytes);
    folder_.write("other.gguf", TinyGguf::llama({.seed = 2}).bytes());
  }

  Finished llmcheck(const std::string& arguments) const {
    return run_shell("cd '" + folder_.path() + "' && '" + tool_path("llmcheck") + "' " + arguments);
  }
  const ScratchDirectory& folder() const { return folder_; }
  const std::string& sha256() const { return sha256_; }

 private:
  ScratchDirectory folder_;
  std::string sha256_;
};

}  // namespace

TEST_CASE("other checks map the weights as well", "[llmcheck][tiny]") {
  const Bench bench;
  CHECK(bench.llmcheck("m.gguf -p ab --compute f32 --dump own.npz --packed-cache c").exit_code ==
        0);
  bench.llmcheck("m.gguf --layer-diff own.npz --packed-cache c").must_end(0);
  CHECK(std::filesystem::exists(bench.folder().path("c")));
}

TEST_CASE("a layer diff of a tiny model passes by its own dump and fails by another's",
          "[llmcheck][tiny]") {
  const Bench bench;
  bench.llmcheck("m.gguf -p ab --compute f32 --dump own.npz").must_end(0);
  bench.llmcheck("m.gguf --layer-diff own.npz --report r.html")
      .must_end(0, {}, {"PASS  f32-run", "PASS  int8-ops"});
  bench.llmcheck("other.gguf --layer-diff own.npz -v")
      .must_end(1, {}, {"FAIL  f32-ops", "locate: "});
  bench.llmcheck("m.gguf --kld own.npz").must_end(0);
}

TEST_CASE("stages of a tiny model pass by its own dump, which finds it, and fail by another's",
          "[llmcheck][tiny]") {
  const Bench bench;
  bench.llmcheck("m.gguf -p ab --compute f32 --dump own.npz").must_end(0);
  bench.llmcheck("--stages own.npz --report r.junit.xml")
      .must_end(0, {}, {"PASS  stage 1, embedding", "PASS  stage 6, text"});
  const Finished wrong = bench.llmcheck("other.gguf --stages own.npz --compute int8")
                             .must_end(1, {}, {"FAIL  stage 1, embedding", "look at: "});
  CHECK_THAT(wrong.out, !Contains("f32-ops"));
}

TEST_CASE("a dump longer than the context is refused", "[llmcheck][tiny]") {
  const Bench bench;
  bench.llmcheck("m.gguf --dump d.npz -p " + std::string(3000, 'a'))
      .must_end(2, {"-p: found 300", "(the context)"});
  CHECK_FALSE(std::filesystem::exists(bench.folder().path("d.npz")));
}

TEST_CASE("token ids of a tiny model are compared with a reference's", "[llmcheck][tiny]") {
  const Bench bench;
  bench.folder().write("right", std::string(R"({"text": "", "ids": [1]})"));
  bench.folder().write("wrong", std::string(R"({"text": "ab", "ids": [1, 2, 3]})"));
  bench.llmcheck("m.gguf --tokenizer right").must_end(0);
  bench.llmcheck("m.gguf --tokenizer wrong").must_end(1, {}, {"0/1 texts match"});
}

TEST_CASE("a reference that a tiny model does not follow fails with a table", "[llmcheck][tiny]") {
  const Bench bench;
  const Json prompt = {{"id", "p"},
                       {"kind", "base"},
                       {"ids", {1, 70}},
                       {"tokens", {9, 9}},
                       {"top_ids", {{9, 8}, {9, 8}}},
                       {"top_logits", {{5, 4}, {5, 4}}}};
  const Json reference = {{"schema_version", 1},  {"format", "llmcheck-verify/1"},
                          {"producer", "test"},   {"oracle", "test"},
                          {"model_name", "tiny"}, {"model_sha256", bench.sha256()},
                          {"tokenizer_hash", ""}, {"steps", 2},
                          {"top_k", 2},           {"prompts", {prompt}}};
  bench.folder().write("ref.json", json_text(reference));
  bench.llmcheck("m.gguf --verify ref.json").must_end(1, {}, {"FAIL", "diverges"});
  // Another file of the model: two steps prove nothing.
  bench.llmcheck("other.gguf --verify ref.json --verify-quantized").must_end(1);
  bench.llmcheck("other.gguf --verify ref.json").must_end(8);
}

TEST_CASE("texts are scored by tiny models side by side", "[llmcheck][tiny]") {
  const Bench bench;
  bench.folder().write("text", std::string(200, 'a'));
  bench.llmcheck("m.gguf --ppl text --also other.gguf --report r.json").must_end(0);
  bench.llmcheck("m.gguf --ppl text --against other.gguf").must_end(0);
}

}  // namespace llm::test
