// Masks of grammars, regular expressions and calls over the embedded model's vocabulary; texts that
// the model draws under them.

#include "base/json.h"
#include "engine/generation/generate.h"
#include "engine/generation/generation_state.h"
#include "engine/generation/ngram_proposer.h"
#include "tests/engine/grammar_support.h"

namespace llm::test {
namespace {

constexpr const char* kPerson =
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer",
        "minimum": 1, "maximum": 120}, "tags": {"type": "array", "items": {"enum": ["kind", "brave", "shy"]},
        "maxItems": 3}}, "required": ["name", "age", "tags"]})";

GenerateOptions hot(std::shared_ptr<const Grammar> grammar, std::uint64_t seed) {
  GenerateOptions options;
  options.sampler.temperature = 1.5F;
  options.sampler.repeat_penalty = 1.2F;
  options.sampler.seed = seed;
  options.max_tokens = 200;
  options.grammar = std::move(grammar);
  return options;
}

GenerateResult tell(const std::shared_ptr<const Model>& model, const GenerateOptions& options) {
  const auto session = require_ok(open_sequence(model, {.context = 512}));
  return require_ok(generate(
      *session, model->tokenizer().encode("Once upon a time", {.add_eos = false}), options));
}

}  // namespace

TEST_CASE("texts at a high temperature are documents of their schema", "[grammar]") {
  const auto model = embedded();
  const auto grammar = compile(GrammarKind::kJsonSchema, kPerson);
  for (std::uint64_t seed = 0; seed < effort(std::size_t{12}, std::size_t{2}); ++seed) {
    const GenerateResult result = tell(model, hot(grammar, seed));
    CAPTURE(seed, result.text);
    REQUIRE(result.stop_reason == StopReason::kEos);
    REQUIRE(takes(grammar, result.text));
    const Json person = llm::parse_json(result.text);
    REQUIRE(person["age"] >= 1);
    REQUIRE(person["age"] <= 120);
    REQUIRE(person["tags"].size() <= 3);
  }
}

TEST_CASE("proposals change nothing of a text under a grammar", "[grammar][speculation]") {
  const auto model = embedded();
  std::size_t accepted = 0;
  for (const auto& grammar : {compile(GrammarKind::kJsonSchema, kPerson),
                              compile(GrammarKind::kRegex, "((yes|no), ){12}end"),
                              compile(GrammarKind::kJsonObject, "")}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      GenerateOptions options = hot(grammar, seed);
      options.logprobs = 1;
      if (seed == 0) options.sampler.temperature = 0;
      const GenerateResult plain = tell(model, options);
      Speculation speculation(std::make_unique<NgramProposer>());
      options.speculation = &speculation;
      const GenerateResult same = tell(model, options);
      CAPTURE(seed, plain.text);
      REQUIRE(same.ids == plain.ids);
      REQUIRE(same.text == plain.text);
      REQUIRE(same.stop_reason == plain.stop_reason);
      for (std::size_t i = 0; i < plain.logprobs.size(); ++i)
        REQUIRE(same.logprobs[i].chosen.logprob == plain.logprobs[i].chosen.logprob);
      accepted += same.accepted;
    }
  }
  REQUIRE(accepted > 0);
}

TEST_CASE("log probabilities under a grammar are the model's own", "[grammar]") {
  const auto model = embedded();
  GenerateOptions options = hot(nullptr, 1);
  options.max_tokens = 1;
  options.logprobs = 5;
  const GenerateResult free = tell(model, options);
  options.grammar = compile(GrammarKind::kRegex, "[{] x");
  const GenerateResult bound = tell(model, options);
  REQUIRE(bound.text == "{");
  REQUIRE(bound.logprobs[0].chosen.logprob < free.logprobs[0].top[4].logprob);
  for (std::size_t i = 0; i < 5; ++i)
    REQUIRE(bound.logprobs[0].top[i].logprob == free.logprobs[0].top[i].logprob);
}

TEST_CASE("a mask is a function of the grammar and the tokens", "[grammar]") {
  const auto grammar = compile(GrammarKind::kJsonSchema, kPerson);
  const auto other = compile(GrammarKind::kJsonSchema, kPerson);
  GrammarState one(grammar, {});
  GrammarState between(grammar, {});
  GrammarState two(other, {});
  for (const char c : std::string(R"({"name": "a\n", "age": 11, )")) {
    const auto mask = require_ok(one.mask());
    const std::vector<std::uint32_t> kept(mask.begin(), mask.end());
    (void)require_ok(between.mask());  // another text of the grammar, somewhere else
    REQUIRE(std::ranges::equal(kept, require_ok(two.mask())));
    for (TokenId id = 0; vocabulary().contains(id); ++id) {
      CAPTURE(id);
      REQUIRE(require_ok(two.takes(id)) == allows(kept, id));
    }
    require_ok(one.accept(byte_token(c)));
    require_ok(two.accept(byte_token(c)));
    if (allows(require_ok(between.mask()), byte_token('{')))
      require_ok(between.accept(byte_token('{')));
  }
  must_fail(one.accept(byte_token('x')), ErrorCode::kUsage, {"grammar allows"});
}

TEST_CASE("a draw under a grammar has the probabilities of the tokens that it allows",
          "[grammar]") {
  GenerateOptions options;
  options.grammar = compile(GrammarKind::kRegex, "[abc]");
  const GenerateSink nobody;
  GenerationState text(vocabulary(), options, nobody);
  std::vector<float> row(vocabulary().size(), -20.0F);
  const std::array<std::pair<char, float>, 4> logits = {{{'a', 1}, {'b', 0}, {'c', -1}, {'x', 1}}};
  for (const auto& [c, logit] : logits) row[static_cast<std::size_t>(byte_token(c))] = logit;
  std::map<TokenId, double> count;
  constexpr double kDraws = 20000;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(kDraws); ++i) {
    require_ok(text.draw(row, {}, i));
    count[*text.drawn()] += 1 / kDraws;
  }
  REQUIRE(count.size() == 3);
  const double all = std::exp(1.0) + 1 + std::exp(-1.0);
  for (const auto& [c, logit] : std::span(logits).first(3)) {
    const double p = std::exp(static_cast<double>(logit)) / all;
    REQUIRE(std::abs(count[byte_token(c)] - p) < 5 * std::sqrt(p * (1 - p) / kDraws));
  }
}

TEST_CASE("tokens that end a text come where it is whole, and nowhere else", "[grammar]") {
  const TokenId end = *vocabulary().spec().eos;
  const TokenId further = byte_token('!');
  GrammarState state(compile(GrammarKind::kRegex, "a!?!?"), std::array{further});
  const auto ends = [&](bool may) {
    const auto mask = require_ok(state.mask());
    REQUIRE(allows(mask, end) == may);
    REQUIRE(allows(mask, further) == may);  // it has a text that the grammar takes there
  };
  ends(false);
  require_ok(state.accept(byte_token('a')));
  ends(true);
  REQUIRE(state.is_complete());
  require_ok(state.accept(end));
  ends(true);
}

TEST_CASE("grammars in EBNF and regular expressions", "[grammar]") {
  const auto [kind, text, valid, other] =
      GENERATE(table<GrammarKind, std::string, std::vector<std::string>, std::vector<std::string>>({
          {GrammarKind::kEbnf,
           "root ::= \"a\" num | list\nnum ::= [0-9]{2,3}\nlist ::= (\"x\" \",\")* # end",
           {"a12", "a123", "x,x,", ""},
           {"a1", "a1234", "x"}},
          {GrammarKind::kEbnf, "root ::= root \"b\" | \"a\"", {"a", "abb"}, {"b", ""}},
          {GrammarKind::kRegex,
           "^(?:ab|c)+?\\.(\\d{2,}|\\x41\\u00e9?)$",
           {"abc.12", "c.A", "c.Aé"},
           {"c.1", ".12", "cx12"}},
          {GrammarKind::kRegex,
           "[^\\d\\s-]{2}[a-c\\]]*\\n?",
           {"xy", "xya]", "xy\n"},
           {"1y", "é-", "xyd"}},
          {GrammarKind::kRegex, ".\\S\\W", {"é+ ", "aa-"}, {"\n+-", "a -", "aaa"}},
          {GrammarKind::kRegex, "\\w+", {"aZ_09"}, {"a-", "é", ""}},
      }));
  CAPTURE(text);
  check_takes(compile(kind, text), valid, other);
}

TEST_CASE("texts that are no grammar are refused", "[grammar]") {
  const auto [kind, text, word] = GENERATE(table<GrammarKind, std::string, std::string>({
      {GrammarKind::kEbnf, "root ::= x", "\"x\" is not defined"},
      {GrammarKind::kEbnf, "a ::= \"x\"", "root"},
      {GrammarKind::kEbnf, "root ::= Regex(\"(?=a)b\")", "the name of a rule"},
      {GrammarKind::kEbnf, "root ::= \"\xFF\"", "UTF-8"},
      {GrammarKind::kRegex, "(a", "closing parenthesis"},
      {GrammarKind::kRegex, "a)", "opening parenthesis"},
      {GrammarKind::kRegex, "a**", "quantifier"},
      {GrammarKind::kRegex, "*", "something to repeat"},
      {GrammarKind::kRegex, "[b-a]", "ascending"},
      {GrammarKind::kRegex, "[a", "closing bracket"},
      {GrammarKind::kRegex, "a{3,2}", "no less"},
      {GrammarKind::kRegex, "a{9999999}", "0..100000"},
      {GrammarKind::kRegex, "\\bfoo", "escape"},
      {GrammarKind::kRegex, "\\1", "escape"},
      {GrammarKind::kRegex, "a$b", "anchors"},
      {GrammarKind::kRegex, std::string(80, '(') + std::string(80, ')'), "64 levels"},
      {GrammarKind::kTags, "{}", "CallTags"},
  }));
  CAPTURE(text);
  must_fail(Grammar::compile({kind, text}, vocabulary()), ErrorCode::kUsage, {word});
}

TEST_CASE("calls stand between their markers, with text around them or not", "[grammar]") {
  const std::string number =
      R"({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})";
  CallTags calls{
      .tags = {{"<call>{\"name\": \"f\", \"arguments\": ", number, "}</call>"},
               {"<call>{\"name\": \"g\", \"arguments\": ", R"({"type": "null"})", "}</call>"}}};
  const std::string f = R"(<call>{"name": "f", "arguments": {"n": 12}}</call>)";
  const std::string g = R"(<call>{"name": "g", "arguments": null}</call>)";
  const auto compiled = [&] { return require_ok(Grammar::compile(calls.source(), vocabulary())); };
  check_takes(compiled(), {f, g},
              {"", f + f, "x" + f, R"(<call>{"name": "g", "arguments": 1}</call>)"});
  calls.most = 2;
  calls.separator = "\n";
  check_takes(compiled(), {f + "\n" + g}, {f + g, f + "\n" + g + "\n" + f});
  calls.free_text = true;
  const auto around = compiled();
  check_takes(around, {"no call", "hm: " + f + " and " + g + "."},
              {"hm: <call>{\"name\": \"f\", \"arguments\": 1"});
  // Free text is what one sees: it has no control tokens.
  REQUIRE_FALSE(allows(require_ok(GrammarState(around, {}).mask()), *vocabulary().spec().bos));
  calls.tags[1].schema = R"({"not": {}})";
  REQUIRE(must_fail(Grammar::compile(calls.source(), vocabulary())).field == "/tags/1/schema/not");
}

TEST_CASE("a control token's spelling in a marker is that token", "[grammar]") {
  const TokenId control = *vocabulary().spec().bos;
  REQUIRE(vocabulary().kind(control) == TokenKind::kControl);
  const bool free_text = GENERATE(false, true);
  const CallTags calls{.tags = {{vocabulary().spelling(control) + "x", R"({"type": "null"})", ""}},
                       .free_text = free_text};
  GrammarState state(require_ok(Grammar::compile(calls.source(), vocabulary())), {});
  REQUIRE(allows(require_ok(state.mask()), control));
  REQUIRE(allows(require_ok(state.mask()), byte_token('<')) == free_text);
  require_ok(state.accept(control));
  for (const char c : std::string("xnull")) {
    REQUIRE_FALSE(state.is_complete());
    require_ok(state.accept(byte_token(c)));
  }
  REQUIRE(state.is_complete());
}

TEST_CASE("among free text, marks begin calls or what they are said to", "[grammar]") {
  const std::string control = vocabulary().spelling(*vocabulary().spec().bos);
  const CallTags calls{.tags = {{.begin = control + "to f:",
                                 .schema = R"({"type": "null"})",
                                 .end = "",
                                 .more = {{" to f ", control, true}}}},
                       .free_text = true,
                       .others = {control + "say:"}};
  const auto grammar = require_ok(Grammar::compile(calls.source(), vocabulary()));
  const auto takes_all = [&](const std::string& text) {
    GrammarState state(grammar, {});
    for (const char c : text) {
      const TokenId id = c == '#' ? *vocabulary().spec().bos : byte_token(c);
      if (!allows(require_ok(state.mask()), id)) return false;
      require_ok(state.accept(id));
    }
    return state.is_complete();
  };
  for (const char* text : {"#say:", "#say:hello to f", "#to f:null", "#say:hm#to f:null and#say:x",
                           " to f #null", " to f #null. #to f:null", "#say:a to f #say:b"})
    CHECK(takes_all(text));
  for (const char* text : {"", "hello", "#", "#x", "#to f:1", "#say:a#to f:1", " to f #1", " to g",
                           "#say:a to f #null"})
    CHECK_FALSE(takes_all(text));
}

TEST_CASE("a compiler keeps the last grammars, up to its bytes", "[grammar]") {
  GrammarCompiler all(vocabulary());
  // Of equal sizes.
  const auto source = [](int i) {
    return GrammarSource{GrammarKind::kRegex, fmt::format("[a-z]{}", i)};
  };
  const auto first = require_ok(all.compile(source(1)));
  REQUIRE(require_ok(all.compile(source(1))) == first);
  REQUIRE(require_ok(all.compile(source(2))) != first);
  GrammarCompiler few(vocabulary(), 3 * first->bytes() + first->bytes() / 2);
  std::vector<std::shared_ptr<const Grammar>> kept;
  for (int i = 1; i <= 3; ++i) kept.push_back(require_ok(few.compile(source(i))));
  REQUIRE(require_ok(few.compile(source(1))) == kept[0]);  // used again: 2 is now the oldest
  for (int i = 4; i <= 5; ++i) (void)require_ok(few.compile(source(i)));
  REQUIRE(require_ok(few.compile(source(1))) == kept[0]);
  REQUIRE(require_ok(few.compile(source(2))) != kept[1]);
  REQUIRE(few.bytes() <= 4 * first->bytes());
  must_fail(few.compile({GrammarKind::kRegex, "("}));
}

}  // namespace llm::test
