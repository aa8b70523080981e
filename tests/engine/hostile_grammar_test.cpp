// Grammars, expressions and schemas that ask for too much, or say what others read otherwise.

#include <fmt/format.h>

#include "tests/base/texts.h"
#include "tests/engine/grammar_support.h"

namespace llm::test {
namespace {

std::string refusal(GrammarKind kind, const std::string& text) {
  const auto grammar = Grammar::compile({kind, text}, vocabulary());
  REQUIRE_FALSE(grammar.ok());
  CHECK(grammar.error().code == ErrorCode::kUsage);
  return grammar.error().message;
}

void check_refused(GrammarKind kind, const std::string& text, const std::string& words) {
  CAPTURE(text.substr(0, 200));
  CHECK_THAT(refusal(kind, text), Catch::Matchers::Contains(words));
}

}  // namespace

TEST_CASE("bad input 97: large numbers in a grammar are rejected and never misread", "[grammar]") {
  for (const char* number : {"100001", "4294967296", "4294967297", "18446744073709551617"}) {
    for (const char* shape : {"{{{0}}}", "{{{0},}}", "{{0,{0}}}", "{{ {0} }}"}) {
      const std::string counts = fmt::format(fmt::runtime(shape), number);
      check_refused(GrammarKind::kEbnf, "root ::= \"a\"" + counts, "in 0..100000");
      check_refused(GrammarKind::kEbnf, "# x\rroot ::= \"a\"" + counts, "in 0..100000");
      if (counts[1] != ' ') check_refused(GrammarKind::kRegex, "a" + counts, "in 0..100000");
    }
  }
  CHECK(takes(compile(GrammarKind::kEbnf, "root ::= \"4294967297\" [#0-9] # 4294967297"),
              "4294967297#"));
  const std::string length = R"({"type": "string", "M": 2147483647})";
  for (const bool is_most : {false, true}) {
    std::string schema = length;
    schema.replace(schema.find('M'), 1, is_most ? "maxLength" : "minLength");
    CHECK(takes(compile(GrammarKind::kJsonSchema, schema), "\"a\"") == is_most);
  }
  // Counts are not multiplied: no text is whole before the 2^32 that are meant.
  for (const char* text : {"", "a", "aaaaaaaa"})
    CHECK_FALSE(takes(compile(GrammarKind::kRegex, "((a{65536}){65536})"), text));
}

TEST_CASE("bad input 98: invalid syntax of a grammar is rejected by line", "[grammar]") {
  check_refused(GrammarKind::kEbnf, std::string("root ::= \"a\"\0 \"b\"", 18), "U+0000");
  check_refused(GrammarKind::kEbnf, std::string("root ::= \"a\0\"", 13), "U+0000");
  check_refused(GrammarKind::kEbnf, "root ::= " + std::string(100'000, '('), "at most 64");
  check_refused(GrammarKind::kEbnf, "root ::= a\na ::= b{2}\nb ::= (a){1,2}",
                "rule a in line 2 of the grammar, which begins with a repetition of itself");
  std::string chain = "root ::= r0";
  for (int i = 0; i < 65; ++i) chain += fmt::format("\nr{} ::= r{}{{2}}", i, i + 1);
  check_refused(GrammarKind::kEbnf, chain + "\nr65 ::= \"a\"", "at most 64 rules");
  for (const char* macro :
       {"Token(1)", "ExcludeToken(1)", "Regex(\"a\")", "Substring(\"abc\")",
        "TagDispatch((\"a\", root))", "TokenTagDispatch((1, root))", "(=\"a\")", "true"})
    check_refused(GrammarKind::kEbnf, std::string("root ::= \"x\" ") + macro, "in line 1");
  for (const char* attribute : {"max_tokens=1", "max_chars=1", "lazy", "temperature=0", "capture"})
    check_refused(GrammarKind::kEbnf, fmt::format("root ::= a\na[{}] ::= \"x\"", attribute),
                  "in line 2");
  check_refused(GrammarKind::kEbnf, "root ::= \"a\"\nroot ::= \"b\"", "in line 2");
  check_refused(GrammarKind::kEbnf, "root ::= [\\d]", "escapes");
  for (const char* escape : {"\\x4", "\\xg1", "\\u12", "\\ud800", "\\U00110000", "\\Uffffffff"})
    check_refused(GrammarKind::kEbnf, fmt::format("root ::= \"{}\"", escape), "digits");
  // Two digits, as in GBNF, however many follow.
  CHECK(takes(compile(GrammarKind::kEbnf, "root ::= \"\\x41\\x422\" [\\x43]"), "AB2C"));
  CHECK(takes(compile(GrammarKind::kEbnf, "root ::= \"\\x012\\u00e9\""),
              "\x01"
              "2\xC3\xA9"));
}

TEST_CASE("bad input 99: a compilation that takes too long is stopped", "[grammar]") {
  check_refused(GrammarKind::kRegex, times(".*", 14'000), "work to compile");
  GrammarCompiler compiler(vocabulary());
  const GrammarSource words{GrammarKind::kRegex, "[a-z]{1,500}"};
  const auto given_up = compiler.compile(words, {.is_given_up = [] { return true; }});
  REQUIRE_FALSE(given_up.ok());
  CHECK(given_up.error().field == CompileLimits::kExceeded);
  CHECK(compiler.compile(words).ok());
}

TEST_CASE("bad input 100: a rule that consists of itself twice is rejected by name", "[grammar]") {
  const auto [text, name] = GENERATE(table<std::string, std::string>({
      {"root ::= a\na ::= a a | [a-z ] | \"\"", "rule a in line 2"},
      {"root ::= a\na ::= a a a | [a-z ]", "rule a in line 2"},
      {"root ::= a\na ::= a a a | a a | [a-z ]", "rule a in line 2"},
      {"root ::= e\ne ::= e e | e \"a\" e | \"x\"", "rule e in line 2"},
      {"root ::= root root | \"x\"", "rule root in line 1"},
      {"root ::= a\n\na ::= b c\nb ::= a | \"x\"\nc ::= n a n\nn ::= \"\" | \"-\"", "line 3"},
      {"root ::= a\na ::= n a n a? \"\" | \"x\"\nn ::= m m\nm ::= \"y\"*", "rule a in line 2"},
      {"root ::= a\na ::= a+ | \"x\"", "rule a in line 2"},
      {"root ::= a\na ::= (\"x\" | b){0,3}\nb ::= (a)", "in line 2"},
      {"root ::= a\na ::= (a a) | \"x\"", "a group in line 2"},
  }));
  check_refused(GrammarKind::kEbnf, text, name);
  check_refused(GrammarKind::kEbnf, text, "which consists of itself twice");
}

TEST_CASE("rules that stand in themselves otherwise are of use", "[grammar]") {
  const auto [text, one] = GENERATE(table<std::string, std::string>({
      {"root ::= e\ne ::= e \"+\" e | [0-9]+", "1+22+3"},
      {"root ::= \"(\" root \")\" root | \"\"", "(())()"},
      {"root ::= \"x\" root? | root \"y\"", "xxyy"},
      {"root ::= list\nlist ::= \"[\" (list (\",\" list)*)? \"]\"", "[[],[[]]]"},
      {"root ::= \"[\" (root \",\"){0,3} \"]\"", "[[],[],]"},
      {"a ::= root\nroot ::= \"a\" | b # to be\r\nb ::= \"b\"", "b"},
  }));
  CAPTURE(text);
  CHECK(takes(compile(GrammarKind::kEbnf, text), one));
}

TEST_CASE("bad input 101: an output whose grammar takes too much work is stopped", "[grammar]") {
  const auto grammar = compile(GrammarKind::kEbnf, "root ::= sum\nsum ::= sum [a-z ] sum | [a-z ]");
  const auto walk = [&] {
    GrammarState state(grammar, {});
    for (std::size_t n = 0;; ++n) {
      REQUIRE(n < 5000);
      if (auto mask = state.mask(); !mask.ok()) return std::pair(n, mask.error());
      if (auto taken = state.accept(byte_token("a bc"[n % 4])); !taken.ok())
        return std::pair(n, taken.error());
    }
  };
  const auto [n, error] = walk();
  CHECK(error.code == ErrorCode::kUsage);
  CHECK(error.field == "grammar");
  CHECK_THAT(error.message, Catch::Matchers::Contains("units of work for a token") &&
                                Catch::Matchers::Contains("for rule sum"));
  CHECK(n > 10);
  CHECK(walk().first == n);  // a count, no clock
}

}  // namespace llm::test
