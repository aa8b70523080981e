// llmcheck --equivalence as a user runs it, on a tiny model: what was frozen passes, and each kind
// of difference fails with its place and both values.

#include "tests/tools/llmcheck_process.h"

namespace llm::test {
namespace {

class Equivalence : public LlmcheckFolder {
 public:
  Equivalence() {
    llmcheck("tiny.gguf --equivalence e.json --update-equivalence 'the first'").must_end(0);
  }
  OrderedJson frozen() const { return test::parse_ordered_json(read("e.json")); }
  /// Puts a value in another's place; "" removes it.
  void edit(const OrderedJson& json, const std::string& pointer, std::string_view value) const {
    write("e.json", json_text(test::with_value(json, pointer, value)));
  }
};

}  // namespace

TEST_CASE("frozen texts of a model pass, in every way they are computed",
          "[llmcheck][equivalence]") {
  const Equivalence bench;
  CHECK(bench.frozen()["reason"] == "the first");
  const Json report = bench.report("tiny.gguf --equivalence e.json -v");
  std::string passed;
  for (const auto& check : report["checks"])
    if (check["verdict"] == "PASS") passed += check["name"].get<std::string>() + "\n";
  require_words(
      passed,
      {"equivalence: frozen: greedy, int8, f16 cache", "frozen: greedy, f32, f32 cache",
       "frozen: sampled as llmrun does", "frozen: chat of two turns", "frozen: context shift",
       "invariance: int8, ", ": 7 threads", ": batches of 7", "without a cache",
       "invariance: f32, scalar: ", "cached and recomputed: 50 prompts x 20 tokens"});
  const auto& rows = report["figures"][0]["rows"];
  REQUIRE(rows.size() == 5);
  CHECK(rows[4]["prefix"] == 1024);
}

TEST_CASE("a frozen text that differs is named with place and both values",
          "[llmcheck][equivalence]") {
  const Equivalence bench;
  const OrderedJson frozen = bench.frozen();
  for (const auto& [pointer, value, words] : std::vector<std::array<const char*, 3>>{
           {"/cases/0/tokens/3", "2", "token 3 is"},
           {"/cases/0/prompt/0", "2", "id of the prompt 0 is 1"},
           {"/cases/0/rows/2/1", "77.5", "row 2: the largest is"},
           {"/cases/0/rows/2/2", R"("0123456789abcdef")", "row 2: SHA-256"},
           {"/cases/0/name", R"("another")", "not in the file"},
       }) {
    bench.edit(frozen, pointer, value);
    bench.llmcheck("tiny.gguf --equivalence e.json").must_end(1, {}, {"FAIL", words});
  }
}

TEST_CASE("stored outputs of a different model or contract are rejected",
          "[llmcheck][equivalence]") {
  const Equivalence bench;
  bench.llmcheck("other.gguf --equivalence e.json").must_end(8, {"e.json", "model_sha256"});
  bench.edit(bench.frozen(), "/contract_version", "99");
  bench.llmcheck("tiny.gguf --equivalence e.json")
      .must_end(8, {"contract_version: found 99, need 1"});
}

TEST_CASE("changed bits are stored only with a new contract version", "[llmcheck][equivalence]") {
  const Equivalence bench;
  bench.edit(bench.frozen(), "/cases/0/tokens/3", "2");
  const std::string before = bench.read("e.json");
  const std::string update = "tiny.gguf --equivalence e.json --update-equivalence again";
  bench.llmcheck(update).must_end(8, {"greedy, int8, f16 cache", "token 3 is"});
  CHECK(bench.read("e.json") == before);
  bench.edit(bench.frozen(), "/contract_version", "99");
  bench.llmcheck(update).must_end(0);
  CHECK(bench.frozen()["reason"] == "again");
  // The same results may always be frozen again.
  bench.llmcheck(update).must_end(0);
}

TEST_CASE("a stored file that breaks the format is rejected by path", "[llmcheck][equivalence]") {
  const Equivalence bench;
  const OrderedJson frozen = bench.frozen();
  const std::string first = json_text(frozen["cases"][0]["name"]);
  for (const auto& [pointer, value, words] : std::vector<std::array<std::string, 3>>{
           {"", "7", "JSON: found 7, need an object"},
           {"/format", R"("x")", "format: found \"x\""},
           {"/model_sha256", R"("F00")", "model_sha256: found \"F00\""},
           {"/cases", "", "cases: found none"},
           {"/cases/1", "3", "cases[1]: found 3"},
           {"/cases/1/name", first, "cases[1].name"},
           {"/cases/1/tokens/2", "-1", "cases[1].tokens[2]: found -1"},
           {"/cases/1/rows/2/0", "", "cases[1].rows[2]: found 2 entries"},
           {"/cases/1/rows/2/1", "1e300", "cases[1].rows[2]"},
       }) {
    bench.edit(frozen, pointer, value);
    bench.llmcheck("tiny.gguf --equivalence e.json").must_end(3, {"e.json", words});
  }
}

TEST_CASE("--update-equivalence needs a file to write", "[llmcheck][equivalence]") {
  const Equivalence bench;
  bench.must_refuse({{"tiny.gguf --update-equivalence why", 2, "--update-equivalence"},
                     {"--equivalence e.json", 2, "MODEL"},
                     {"tiny.gguf --equivalence none.json", 4, "none.json"}});
}

}  // namespace llm::test
