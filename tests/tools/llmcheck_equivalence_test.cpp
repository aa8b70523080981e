// llmcheck --equivalence as a user runs it, on a tiny model: what was frozen passes, and each kind
// of difference fails with its place and both values.

#include "tests/support/json.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

class Bench {
 public:
  Bench() {
    folder_.write("m.gguf", TinyGguf::llama().bytes());
    folder_.write("other.gguf", TinyGguf::llama({.seed = 2}).bytes());
    REQUIRE(llmcheck("m.gguf --equivalence e.json --update-equivalence 'the first'").exit_code ==
            0);
  }

  Finished llmcheck(const std::string& arguments) const {
    return run_shell("cd '" + folder_.path() + "' && '" + tool_path("llmcheck") + "' -t 1 " +
                     arguments);
  }
  OrderedJson frozen() const { return test::parse_ordered_json(read_file(folder_.path("e.json"))); }
  void edit(const std::function<void(OrderedJson&)>& change) const {
    OrderedJson json = frozen();
    change(json);
    folder_.write("e.json", json_text(json));
  }
  const ScratchDirectory& folder() const { return folder_; }

 private:
  ScratchDirectory folder_;
};

}  // namespace

TEST_CASE("frozen texts of a model pass, in every way they are computed",
          "[llmcheck][equivalence]") {
  const Bench bench;
  CHECK(bench.frozen()["reason"] == "the first");
  bench.llmcheck("m.gguf --equivalence e.json -v --report r.json").must_end(0);
  const OrderedJson report = test::parse_ordered_json(read_file(bench.folder().path("r.json")));
  const auto verdict = [&](const std::string& name) -> std::string {
    for (const auto& check : report["checks"])
      if (check["name"].get<std::string>().find(name) != std::string::npos) return check["verdict"];
    return "none";
  };
  for (const char* name :
       {"equivalence: frozen: greedy, int8, f16 cache", "frozen: greedy, f32, f32 cache",
        "frozen: sampled as llmrun does", "frozen: chat of two turns", "frozen: context shift",
        "invariance: int8, ", ": 7 threads", ": batches of 7", "without a cache",
        "invariance: f32, scalar: ", "cached against recomputed: 50 prompts x 20 tokens"}) {
    CAPTURE(name);
    CHECK(verdict(name) == "PASS");
  }
  const auto& rows = report["figures"][0]["rows"];
  REQUIRE(rows.size() == 5);
  CHECK(rows[4]["prefix"] == 1024);
}

TEST_CASE("a frozen text that differs is named with place and both values",
          "[llmcheck][equivalence]") {
  const Bench bench;
  const auto [change, words] = GENERATE(table<std::function<void(OrderedJson&)>, std::string>(
      {{[](OrderedJson& j) { j["cases"][0]["tokens"][3] = 2; }, "token 3 is"},
       {[](OrderedJson& j) { j["cases"][0]["prompt"][0] = 2; }, "id of the prompt 0 is 1"},
       {[](OrderedJson& j) { j["cases"][0]["rows"][2][1] = 77.5; }, "row 2: the largest is"},
       {[](OrderedJson& j) { j["cases"][0]["rows"][2][2] = "0123456789abcdef"; }, "row 2: SHA-256"},
       {[](OrderedJson& j) { j["cases"][0]["name"] = "another"; }, "not in the file"}}));
  bench.edit(change);
  bench.llmcheck("m.gguf --equivalence e.json").must_end(1, {}, {"FAIL", words});
}

TEST_CASE("frozen texts of another model or contract are refused", "[llmcheck][equivalence]") {
  const Bench bench;
  bench.llmcheck("other.gguf --equivalence e.json").must_end(8, {"e.json", "model_sha256"});
  bench.edit([](OrderedJson& j) { j["contract_version"] = 99; });
  bench.llmcheck("m.gguf --equivalence e.json").must_end(8, {"contract_version: found 99, need 1"});
}

TEST_CASE("bits that changed are frozen under a new contract only", "[llmcheck][equivalence]") {
  const Bench bench;
  bench.edit([](OrderedJson& j) { j["cases"][0]["tokens"][3] = 2; });
  const std::string before = read_file(bench.folder().path("e.json"));
  const std::string update = "m.gguf --equivalence e.json --update-equivalence again";
  bench.llmcheck(update).must_end(8, {"greedy, int8, f16 cache", "token 3 is"});
  CHECK(read_file(bench.folder().path("e.json")) == before);
  bench.edit([](OrderedJson& j) { j["contract_version"] = 99; });
  bench.llmcheck(update).must_end(0);
  CHECK(bench.frozen()["reason"] == "again");
  // The same results may always be frozen again.
  bench.llmcheck(update).must_end(0);
}

TEST_CASE("a frozen file that breaks the format is refused by path", "[llmcheck][equivalence]") {
  const Bench bench;
  const auto [change, words] = GENERATE(table<std::function<void(OrderedJson&)>, std::string>(
      {{[](OrderedJson& j) { j = 7; }, "JSON: found 7, need an object"},
       {[](OrderedJson& j) { j["format"] = "x"; }, "format: found \"x\""},
       {[](OrderedJson& j) { j["model_sha256"] = "F00"; }, "model_sha256: found \"F00\""},
       {[](OrderedJson& j) { j.erase("cases"); }, "cases: found none"},
       {[](OrderedJson& j) { j["cases"][1] = 3; }, "cases[1]: found 3"},
       {[](OrderedJson& j) { j["cases"][1]["name"] = j["cases"][0]["name"]; }, "cases[1].name"},
       {[](OrderedJson& j) { j["cases"][1]["tokens"][2] = -1; }, "cases[1].tokens[2]: found -1"},
       {[](OrderedJson& j) { j["cases"][1]["rows"][2].erase(0); },
        "cases[1].rows[2]: found 2 entries"},
       {[](OrderedJson& j) { j["cases"][1]["rows"][2][1] = 1e300; }, "cases[1].rows[2]"}}));
  bench.edit(change);
  bench.llmcheck("m.gguf --equivalence e.json").must_end(3, {"e.json", words});
}

TEST_CASE("--update-equivalence needs a file to write", "[llmcheck][equivalence]") {
  const Bench bench;
  bench.llmcheck("m.gguf --update-equivalence why").must_end(2);
  const Finished none = bench.llmcheck("--equivalence e.json").must_end(2, {"MODEL"});
  bench.llmcheck("m.gguf --equivalence none.json").must_end(4);
}

}  // namespace llm::test
