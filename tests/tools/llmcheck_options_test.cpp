// Options of llmcheck whose effect no other test would miss.

#include "tests/support/json.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

class Tiny : public ScratchDirectory {
 public:
  Tiny() { model = write("tiny.gguf", llm::test::TinyGguf::llama().bytes()); }

  Finished check(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), model);
    return run_tool("llmcheck", std::move(arguments));
  }

  Json report(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--report", *this / "r.json"});
    check(std::move(arguments)).must_end(0);
    return test::parse_json(read("r.json"));
  }

  std::string model;
};

TEST_CASE("--isa and --threads choose how the model is computed", "[llmcheck][options]") {
  const Tiny tiny;
  const std::string text = tiny.write("text", "a tiny text of some letters");
  tiny.check({"--ppl", text, "--isa", "scalar", "--threads", "3", "-vv"})
      .must_end(0, {"tiny.gguf: computed with scalar by 3 threads"});
  const auto facts = tiny.report({"--ppl", text, "--isa", "scalar", "--threads", "3"})["facts"];
  CHECK(facts["isa"] == "scalar");
  CHECK(facts["threads"] == "3");
}

TEST_CASE("--ppl-window cuts the text, and --compute changes the likelihoods",
          "[llmcheck][options]") {
  const Tiny tiny;
  const std::string text = tiny.write("text", "a tiny text of some letters");
  const auto table = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"-t", "1", "--ppl", text};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tiny.report(arguments)["figures"][0];
  };
  const auto whole = table({});
  const auto cut = table({"--ppl-window", "4"});
  CHECK_THAT(whole["title"], Contains("windows of 64"));
  CHECK_THAT(cut["title"], Contains("windows of 4"));
  CHECK(whole["rows"][0]["tokens"] == cut["rows"][0]["tokens"]);
  CHECK(whole["rows"][0]["nll"] != cut["rows"][0]["nll"]);
  CHECK(table({"--compute", "int8"})["rows"][0]["nll"] == whole["rows"][0]["nll"]);
  CHECK(table({"--compute", "f32"})["rows"][0]["nll"] != whole["rows"][0]["nll"]);
}

TEST_CASE("--prompt is what --dump records", "[llmcheck][options]") {
  const Tiny tiny;
  const auto kld_positions = [&](const std::string& prompt) {
    const std::string dump = tiny / "d.npz";
    tiny.check({"-t", "1", "--dump", dump, "-p", prompt}).must_end(0);
    return tiny.report({"-t", "1", "--kld", dump})["figures"][0]["rows"][0]["positions"].get<int>();
  };
  CHECK(kld_positions("abcdefg") == kld_positions("abc") + 4);
}

TEST_CASE("--tokenizer compares with reference ids", "[llmcheck][options]") {
  const Tiny tiny;
  const auto json =
      test::parse_json(run_tool("llmtok", {tiny.model, "-p", "the", "--no-bos", "--json"}).out);
  const auto reference = [&](const Json& ids) {
    return tiny.write("ref.jsonl", json_text(Json{{"text", "the"}, {"ids", ids}}) + "\n");
  };
  tiny.check({"-t", "1", "--tokenizer", reference(json["ids"])})
      .must_end(0, {}, {"1/1 texts match"});
  tiny.check({"-t", "1", "--tokenizer", reference({5, 6})}).must_end(1, {}, {"0/1 texts match"});
}

}  // namespace

}  // namespace llm::test
