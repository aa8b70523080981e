// llmrun writes texts of the structure that its options ask for.

#include "tests/tools/llmrun_process.h"

namespace llm::test {

TEST_CASE("llmrun's options say what a text is", "[llmrun][structure]") {
  const ScratchDirectory directory;
  const auto run = [](std::vector<std::string> more, int exit_code) {
    more.insert(more.begin(), {kFable, "-q", "-t1", "-pOnce", "-s2", "-n200"});
    return run_tool("llmrun", more).must_end(exit_code);
  };
  const std::string grammar = "root ::= \"x\" [0-3]{4}";
  for (const std::vector<std::string>& option :
       std::vector<std::vector<std::string>>{{"--regex", "x[0-3]{4}"},
                                             {"--grammar", grammar},
                                             {"--grammar-file", directory.write("g", grammar)}}) {
    const std::string text = run(option, 0).out;
    CAPTURE(option, text);
    REQUIRE(text.size() == 5);
    REQUIRE(text.find_first_not_of("0123", 1) == std::string::npos);
  }
  REQUIRE(test::parse_json(run({"--json-object"}, 0).out).is_object());
  const std::string schema =
      R"({"type": "object", "required": ["k"], "additionalProperties": {"type": "null"}, "maxProperties": 1})";
  REQUIRE(run({"-j", schema}, 0).out == R"({"k": null})");
  REQUIRE(run({"-jf", directory.write("s", schema)}, 0).out == R"({"k": null})");
  REQUIRE_THAT(run({"-j", R"({"if": {}})"}, 2).err, Contains("--json-schema: /if"));
  REQUIRE_THAT(run({"--regex", "a", "--grammar", grammar}, 2).err,
               Contains("--regex: found with --grammar"));
  REQUIRE_THAT(run({"--regex", "a", "--ignore-eos"}, 2).err, Contains("--ignore-eos"));
}

TEST_CASE("a token that a mask allows and the grammar does not take is not drawn",
          "[llmrun][structure]") {
  // xgrammar's mask after [ab]+ allows "ai" and "ar" here, which no text of the expression has.
  for (int seed = 1; seed <= 24; ++seed) {
    CAPTURE(seed);
    const std::string text =
        run_tool("llmrun", {kFable, "-q", "-t1", "-pa", fmt::format("-s{}", seed), "-n40", "--temp",
                            "2", "--regex", "[ab]+[^aeiou]z"})
            .must_end(0)
            .out;
    CAPTURE(text);
    REQUIRE(text.size() >= 3);
    const std::size_t other = text.find_first_not_of("ab");
    REQUIRE(text.find_first_of("eiou") == std::string::npos);
    REQUIRE(text.ends_with("z"));
    REQUIRE(other != 0);
  }
}

TEST_CASE("a grammar is replayed, and not continued in a branch", "[llmrun][replay]") {
  const ToolFolder folder;
  folder
      .shell("llmrun " + kFable +
             " -q -t 1 -p Hi -n 30 -s 5 --regex '[a-z]{20}z' --receipt r.json && "
             "llmrun replay r.json -t 1 --at 4 -m " +
             kFable)
      .must_end(0, {"equal the receipt"});
  const auto branch = [&](const std::string& at) {
    return folder.shell("llmrun replay r.json -t 1 --set seed=9 --receipt b.json -m " + kFable +
                        at);
  };
  branch(" --at 4").must_end(
      6, {"r.json: options.grammar: found with 4 tokens that are kept, need 0"});
  branch("").must_end(0);
  folder.shell("llmcheck " + kFable + " --replay b.json -t 1").must_end(0);
}

}  // namespace llm::test
