// Options of llmcheck whose effect no other test would miss.

#include "tests/tools/llmcheck_process.h"

namespace llm::test {

TEST_CASE("--isa and --threads choose how the model is computed", "[llmcheck][options]") {
  const LlmcheckFolder folder;
  folder.write("text", "a tiny text of some letters");
  const std::string run = "tiny.gguf --ppl text --isa scalar --threads 3";
  folder.llmcheck(run + " -vv").must_end(0, {"tiny.gguf: computed with scalar by 3 threads"});
  const Json facts = folder.report(run)["facts"];
  CHECK(facts["isa"] == "scalar");
  CHECK(facts["threads"] == "3");
}

TEST_CASE("--ppl-window cuts the text, and --compute changes the likelihoods",
          "[llmcheck][options]") {
  const LlmcheckFolder folder;
  folder.write("text", "a tiny text of some letters");
  const auto table = [&](const std::string& more) {
    return folder.report("tiny.gguf --ppl text " + more)["figures"][0];
  };
  const Json whole = table("");
  const Json cut = table("--ppl-window 4");
  CHECK_THAT(whole["title"], Contains("windows of 64"));
  CHECK_THAT(cut["title"], Contains("windows of 4"));
  CHECK(whole["rows"][0]["tokens"] == cut["rows"][0]["tokens"]);
  CHECK(whole["rows"][0]["nll"] != cut["rows"][0]["nll"]);
  CHECK(table("--compute int8")["rows"][0]["nll"] == whole["rows"][0]["nll"]);
  CHECK(table("--compute f32")["rows"][0]["nll"] != whole["rows"][0]["nll"]);
}

TEST_CASE("--prompt is what --dump records", "[llmcheck][options]") {
  const LlmcheckFolder folder;
  const auto kld_positions = [&](const std::string& prompt) {
    folder.llmcheck("tiny.gguf --dump d.npz -p " + prompt).must_end(0);
    return folder.report("tiny.gguf --kld d.npz")["figures"][0]["rows"][0]["positions"].get<int>();
  };
  CHECK(kld_positions("abcdefg") == kld_positions("abc") + 4);
}

}  // namespace llm::test
