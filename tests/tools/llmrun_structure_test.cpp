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

}  // namespace llm::test
