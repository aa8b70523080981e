// Every question of llmcheck but --self on a tiny model, right and wrong answers: fast enough to be
// asked with sanitizers too.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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
  CHECK(bench.llmcheck("m.gguf --layer-diff own.npz --packed-cache c").exit_code == 0);
  CHECK(std::filesystem::exists(bench.folder().path("c")));
}

TEST_CASE("a layer diff of a tiny model passes by its own dump and fails by another's",
          "[llmcheck][tiny]") {
  const Bench bench;
  REQUIRE(bench.llmcheck("m.gguf -p ab --compute f32 --dump own.npz").exit_code == 0);
  const Finished right = bench.llmcheck("m.gguf --layer-diff own.npz --report r.html");
  CAPTURE(right.out, right.err);
  CHECK(right.exit_code == 0);
  CHECK_THAT(right.out, Contains("PASS  f32-run") && Contains("PASS  int8-ops"));
  const Finished wrong = bench.llmcheck("other.gguf --layer-diff own.npz -v");
  CHECK(wrong.exit_code == 1);
  CHECK_THAT(wrong.out, Contains("FAIL  f32-ops") && Contains("locate: "));
  CHECK(bench.llmcheck("m.gguf --kld own.npz").exit_code == 0);
}

TEST_CASE("stages of a tiny model pass by its own dump, which finds it, and fail by another's",
          "[llmcheck][tiny]") {
  const Bench bench;
  REQUIRE(bench.llmcheck("m.gguf -p ab --compute f32 --dump own.npz").exit_code == 0);
  const Finished right = bench.llmcheck("--stages own.npz --report r.junit.xml");
  CAPTURE(right.out, right.err);
  CHECK(right.exit_code == 0);
  CHECK_THAT(right.out, Contains("PASS  stage 1, embedding") && Contains("PASS  stage 6, text"));
  const Finished wrong = bench.llmcheck("other.gguf --stages own.npz --compute int8");
  CHECK(wrong.exit_code == 1);
  CHECK_THAT(wrong.out, Contains("FAIL  stage 1, embedding") && Contains("look at: "));
  CHECK_THAT(wrong.out, !Contains("f32-ops"));
}

TEST_CASE("a dump longer than the context is refused", "[llmcheck][tiny]") {
  const Bench bench;
  const Finished run = bench.llmcheck("m.gguf --dump d.npz -p " + std::string(3000, 'a'));
  CHECK(run.exit_code == 2);
  CHECK_THAT(run.err, Contains("-p: found 300") && Contains("(the context)"));
  CHECK_FALSE(std::filesystem::exists(bench.folder().path("d.npz")));
}

TEST_CASE("token ids of a tiny model are compared with a reference's", "[llmcheck][tiny]") {
  const Bench bench;
  bench.folder().write("right", std::string(R"({"text": "", "ids": [1]})"));
  bench.folder().write("wrong", std::string(R"({"text": "ab", "ids": [1, 2, 3]})"));
  CHECK(bench.llmcheck("m.gguf --tokenizer right").exit_code == 0);
  const Finished wrong = bench.llmcheck("m.gguf --tokenizer wrong");
  CHECK(wrong.exit_code == 1);
  CHECK_THAT(wrong.out, Contains("0/1 texts match"));
}

TEST_CASE("a reference that a tiny model does not follow fails with a table", "[llmcheck][tiny]") {
  const Bench bench;
  const nlohmann::json prompt = {{"id", "p"},
                                 {"kind", "base"},
                                 {"ids", {1, 70}},
                                 {"tokens", {9, 9}},
                                 {"top_ids", {{9, 8}, {9, 8}}},
                                 {"top_logits", {{5, 4}, {5, 4}}}};
  const nlohmann::json reference = {{"schema_version", 1},  {"format", "llmcheck-verify/1"},
                                    {"producer", "test"},   {"oracle", "test"},
                                    {"model_name", "tiny"}, {"model_sha256", bench.sha256()},
                                    {"tokenizer_hash", ""}, {"steps", 2},
                                    {"top_k", 2},           {"prompts", {prompt}}};
  bench.folder().write("ref.json", reference.dump());
  const Finished strict = bench.llmcheck("m.gguf --verify ref.json");
  CAPTURE(strict.out, strict.err);
  CHECK(strict.exit_code == 1);
  CHECK_THAT(strict.out, Contains("FAIL") && Contains("diverges"));
  // Another file of the model: two steps prove nothing.
  CHECK(bench.llmcheck("other.gguf --verify ref.json --verify-quantized").exit_code == 1);
  CHECK(bench.llmcheck("other.gguf --verify ref.json").exit_code == 8);
}

TEST_CASE("texts are scored by tiny models side by side", "[llmcheck][tiny]") {
  const Bench bench;
  bench.folder().write("text", std::string(200, 'a'));
  const Finished scored = bench.llmcheck("m.gguf --ppl text --also other.gguf --report r.json");
  CAPTURE(scored.out, scored.err);
  CHECK(scored.exit_code == 0);
  CHECK(bench.llmcheck("m.gguf --ppl text --against other.gguf").exit_code == 0);
}

}  // namespace llm::test
