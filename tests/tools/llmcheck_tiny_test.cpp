// Every question of llmcheck but --self on a tiny model, right and wrong answers: fast enough to be
// asked with sanitizers too.

#include "base/sha256.h"
#include "tests/tools/llmcheck_process.h"

namespace llm::test {
TEST_CASE("layer diff and stages of a tiny model pass by its own dump and fail by another's",
          "[llmcheck][tiny]") {
  const LlmcheckFolder folder;
  // Other checks than --self map the weights as well.
  folder.llmcheck("tiny.gguf -p ab --compute f32 --dump own.npz --packed-cache c").must_end(0);
  folder.llmcheck("tiny.gguf --layer-diff own.npz --packed-cache c --report r.html")
      .must_end(0, {}, {"PASS  f32-run", "PASS  int8-ops"});
  CHECK(std::filesystem::exists(folder / "c"));
  folder.llmcheck("other.gguf --layer-diff own.npz -v")
      .must_end(1, {}, {"FAIL  f32-ops", "locate: "});
  folder.llmcheck("tiny.gguf --kld own.npz").must_end(0);
  // The dump finds its model.
  folder.llmcheck("--stages own.npz --report r.junit.xml")
      .must_end(0, {}, {"PASS  stage 1, embedding", "PASS  stage 6, text"});
  const Finished wrong = folder.llmcheck("other.gguf --stages own.npz --compute int8")
                             .must_end(1, {}, {"FAIL  stage 1, embedding", "look at: "});
  CHECK_THAT(wrong.out, !Contains("f32-ops"));
}

TEST_CASE("a dump longer than the context is refused", "[llmcheck][tiny]") {
  const LlmcheckFolder folder;
  folder.llmcheck("tiny.gguf --dump d.npz -p " + std::string(3000, 'a'))
      .must_end(2, {"-p: found 300", "(the context)"});
  CHECK_FALSE(std::filesystem::exists(folder / "d.npz"));
}

TEST_CASE("token ids of a tiny model are compared with a reference's", "[llmcheck][tiny]") {
  const LlmcheckFolder folder;
  folder.write("right", std::string(R"({"text": "", "ids": [1]})"));
  folder.write("wrong", std::string(R"({"text": "ab", "ids": [1, 2, 3]})"));
  folder.llmcheck("tiny.gguf --tokenizer right").must_end(0, {}, {"1/1 texts match"});
  folder.llmcheck("tiny.gguf --tokenizer wrong").must_end(1, {}, {"0/1 texts match"});
}

TEST_CASE("a reference that a tiny model does not follow fails with a table", "[llmcheck][tiny]") {
  const LlmcheckFolder folder;
  const std::string model = folder.read("tiny.gguf");
  const Json reference =
      R"({"schema_version": 1, "format": "llmcheck-verify/1", "producer": "test", "oracle": "test",
          "model_name": "tiny", "tokenizer_hash": "", "steps": 2, "top_k": 2, "prompts": [
          {"id": "p", "kind": "base", "ids": [1, 70], "tokens": [9, 9],
           "top_ids": [[9, 8], [9, 8]], "top_logits": [[5, 4], [5, 4]]}]})"_j |
      Json{{"model_sha256", sha256_hex(std::as_bytes(std::span(model)))}};
  folder.write("ref.json", json_text(reference));
  folder.llmcheck("tiny.gguf --verify ref.json").must_end(1, {}, {"FAIL", "diverges"});
  // Another file of the model: two steps prove nothing.
  folder.llmcheck("other.gguf --verify ref.json --verify-quantized").must_end(1);
  folder.llmcheck("other.gguf --verify ref.json").must_end(8);
}

TEST_CASE("texts are scored by tiny models side by side", "[llmcheck][tiny]") {
  const LlmcheckFolder folder;
  folder.write("text", std::string(200, 'a'));
  folder.llmcheck("tiny.gguf --ppl text --also other.gguf --report r.json").must_end(0);
  folder.llmcheck("tiny.gguf --ppl text --against other.gguf").must_end(0);
}

}  // namespace llm::test
