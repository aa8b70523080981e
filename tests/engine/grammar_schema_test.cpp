// Texts of a JSON schema are documents of it, and what is not enforced is refused by name. That
// every text of hundreds of schemas is valid, ./dev schemas asks Python's jsonschema.

#include "base/json.h"
#include "engine/grammar/schema_rules.h"
#include "tests/engine/grammar_support.h"

namespace llm::test {
namespace {

std::shared_ptr<const Grammar> of_schema(const std::string& schema) {
  return compile(GrammarKind::kJsonSchema, schema);
}

struct Documents {
  std::string schema;
  std::vector<std::string> valid;
  std::vector<std::string> others;  ///< invalid, or written otherwise
};

}  // namespace

TEST_CASE("documents of a schema are taken, others are not", "[grammar]") {
  const auto documents = GENERATE(values<Documents>({
      {R"({"type": "null"})", {"null"}, {"nul", "null ", "\"null\"", ""}},
      {R"({"type": ["boolean", "null"]})", {"true", "false", "null"}, {"1", "\"true\""}},
      {R"({"type": "string"})",
       {R"("")", R"("a\n\"\\\/é")", "\"é😀\"", R"("\u00e9")"},
       {"\"\n\"", "\"\\x\"", R"("\ud83d")", "\"\xED\xA0\x80\"", "\"\xFF\"", "\"a"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {"\"ab\"", "\"éé\"", R"("\n\n\n")"},
       {"\"a\"", "\"abcd\"", "\"a\tb\""}},
      {R"({"type": "string", "pattern": "^\\d{2}(-|\\s)[^\\W\"]+$"})",
       {R"("12-a")", R"("12 ab")", R"("12\tb")"},
       {R"("1-a")", R"("12-")", R"("12-a\"")", R"("12-é")"}},
      {R"({"type": "string", "pattern": "a.\"\\\\"})",
       {R"("ab\"\\")"},
       {R"("ab"\")", R"("a\"\\")"}},
      {R"({"type": "string", "format": "date"})",
       {"\"2024-02-28\""},
       {"\"2024-02-30\"", "\"24-1-1\""}},
      {R"({"enum": ["a", 1, null, [1, {"b": "/"}]]})",
       {"\"a\"", "1", "null", R"([1,{"b":"/"}])"},
       {"\"b\"", "1.0", "[1, 2]"}},
      {R"({"type": "integer", "enum": ["a", 1, 2.5]})", {"1"}, {"\"a\"", "2.5"}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
       {"[1]", "[1, 2, 3]"},
       {"[]", "[1, 2, 3, 4]", "[1,2]", "[\"a\"]", "[1, ]"}},
      {R"({"prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": {"type": "string"}})",
       {"[]", "[null]", "[null, true]", "[null, true, \"a\", \"b\"]"},
       {"[true]", "[null, \"a\"]", "[null, true, 1]"}},
      {R"({"prefixItems": [{"type": "null"}], "minItems": 2, "maxItems": 3, "items": {"type": "string"}})",
       {"[null, \"a\"]", "[null, \"a\", \"b\"]"},
       {"[null]", "[null, \"a\", \"b\", \"c\"]"}},
      {R"({"properties": {"b": {"type": "null"}, "a": {"type": "boolean"}}, "required": ["a"]})",
       {R"({"b": null, "a": true})", R"({"a": true})"},
       {R"({"a": true, "b": null})", R"({"b": null})", "{}", R"({"a": true, "c": 1})",
        R"({"a":true})"}},
      {R"({"properties": {"ab": {"type": "null"}, "a": true}, "additionalProperties": {"type": "boolean"}})",
       {"{}", R"({"ab": null, "x": true, "abc": true})", R"({"a": 1, "b": false})",
        R"({"x": true})"},
       {R"({"x": 1})", R"({"x": true, "ab": null})", R"({"ab": true})", R"({"\u0061b": true})",
        R"({"": true})"}},
      {R"({"type": "object", "required": ["x"], "additionalProperties": {"type": "null"}})",
       {R"({"x": null})", R"({"x": null, "y": null})"},
       {"{}", R"({"y": null})", R"({"x": 1})"}},
      {R"({"properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}},
           "minProperties": 2, "maxProperties": 2, "required": ["c"]})",
       {R"({"a": null, "c": null})"},
       {R"({"c": null})", R"({"a": null, "b": null, "c": null})"}},
      {R"({"type": "object", "minProperties": 1, "maxProperties": 2})",
       {R"({"a": [1, {"b": -0.5e3}]})", R"({"a": 1, "b": 2})"},
       {"{}", R"({"a": 1, "b": 2, "c": 3})"}},
      {R"({"patternProperties": {"^x-[a-z]$": {"type": "null"}}})",
       {"{}", R"({"x-a": null, "x-b": null})"},
       {R"({"x-a": 1})", R"({"a": null})"}},
      {R"({"propertyNames": {"maxLength": 2}, "additionalProperties": {"type": "null"}})",
       {R"({"ab": null})"},
       {R"({"abc": null})", R"({"a": 1})"}},
      {R"({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a~1b"}], "$defs": {"a/b": {"const": 7}}})",
       {"null", "7"},
       {"8"}},
      {R"({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}})",
       {R"({"next": {"next": null}})", "{}"},
       {R"({"next": {"next": 1}})"}},
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
                     {"type": "object", "properties": {"k": {"enum": ["b", "c"]}}, "required": ["k"]},
                     {"type": "null"}]})",
       {R"({"k": "c"})", "null"},
       {"{}"}},
      {R"({"allOf": [{"type": "null", "title": "x"}], "description": "y", "$schema": "z"})",
       {"null"},
       {"1"}},
      {R"({"minLength": 1, "minimum": 3, "multipleOf": 2})",
       {"\"a\"", "4", "100"},
       {"\"\"", "2", "5", "null"}},
  }));
  CAPTURE(documents.schema);
  check_takes(of_schema(documents.schema), documents.valid, documents.others);
}

TEST_CASE("what is not enforced is refused, and the place named", "[grammar]") {
  const auto [schema, pointer] = GENERATE(table<std::string, std::string>({
      {R"({"properties": {"a/b": {"not": {}}}})", "/properties/a~1b/not"},
      {R"({"type": "array", "items": {"contains": {}}})", "/items/contains"},
      {R"({"type": "array", "uniqueItems": true})", "/uniqueItems"},
      {R"({"nullable": true})", "/nullable"},
      {R"({"if": {}, "then": {}})", "/if"},
      {R"({"$ref": "#/$defs/x"})", "/$ref"},
      {R"({"$ref": "https://example.org/schema"})", "/$ref"},
      {R"({"anyOf": [{"$ref": "#"}]})", "/anyOf/0/$ref"},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"if": {}}}})", "/$defs/a/if"},
      {R"({"$ref": "#/$defs/a", "minLength": 1, "$defs": {"a": {}}})", "/minLength"},
      {R"({"anyOf": [{}], "type": "string"})", "/type"},
      {R"({"allOf": [{"type": "object"}, {"minProperties": 1}]})", "/allOf"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "/oneOf"},
      {R"({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]})", "/oneOf"},
      {R"({"oneOf": [{"properties": {"a": {}}}, {"type": "string"}]})", "/oneOf"},
      {R"({"oneOf": [{"type": "null"}, {"minLength": 2}]})", "/oneOf"},
      {R"({"type": "string", "format": "regex"})", "/format"},
      {R"({"type": "string", "pattern": "(?=b)a"})", "/pattern"},
      {R"({"type": "string", "pattern": "a", "maxLength": 3})", "/pattern"},
      {R"({"type": "number", "multipleOf": 0.1})", "/multipleOf"},
      {R"({"minimum": 5, "maximum": 4})", "/maximum"},
      {R"({"exclusiveMinimum": true})", "/exclusiveMinimum"},
      {R"({"minLength": -1})", "/minLength"},
      {R"({"minItems": 2, "maxItems": 1})", "/maxItems"},
      {R"({"minItems": 2, "prefixItems": [{}], "items": false})", "/minItems"},
      {R"({"items": [{}]})", "/items"},
      {R"({"minProperties": 2})", "/minProperties"},
      {R"({"required": ["a"], "additionalProperties": false})", "/required"},
      {R"({"patternProperties": {"a": {}, "b": {}}})", "/patternProperties"},
      {R"({"properties": {"a": {}}, "propertyNames": {"maxLength": 1}, "additionalProperties": true})",
       "/propertyNames"},
      {R"({"const": 1e300})", "/const"},
      {R"({"enum": []})", "/enum"},
      {R"({"type": "strin"})", "/type"},
      {R"({"properties": {"a": false}})", "/properties/a"},
      {R"({"properties": 3})", "/properties"},
      {"[]", ""},
      {"{", ""},
  }));
  CAPTURE(schema);
  const auto grammar = Grammar::compile({GrammarKind::kJsonSchema, schema}, vocabulary());
  REQUIRE(must_fail(grammar, ErrorCode::kUsage).field == pointer);
}

TEST_CASE("a schema's size and depth are limited", "[grammar]") {
  std::string deep = "{}";
  for (int i = 0; i < 70; ++i) deep = R"({"items": )" + deep + "}";
  must_fail(Grammar::compile({GrammarKind::kJsonSchema, deep}, vocabulary()), {"64 levels"});
  const std::string large = "{" + std::string(Grammar::kMostBytes, ' ') + "}";
  must_fail(Grammar::compile({GrammarKind::kJsonSchema, large}, vocabulary()), {"bytes"});
}

TEST_CASE("numbers keep their bounds, and all that keep them come", "[grammar]") {
  std::mt19937 random(7);
  for (int round = 0; round < effort(60, 8); ++round) {
    const int low = static_cast<int>(random() % 2000) - 1000;
    const int high = low + static_cast<int>(random() % 300);
    const bool is_integer = round % 2 == 0;
    const double scale = is_integer ? 1 : std::pow(10, static_cast<int>(random() % 5));
    const OrderedJson schema = {{"type", is_integer ? "integer" : "number"},
                                {"minimum", low / scale},
                                {"maximum", high / scale}};
    CAPTURE(json_text(schema));
    const auto grammar = of_schema(json_text(schema));
    for (int i = 0; i < 20; ++i) {
      const std::string text = random_text(grammar, random, 20).value();
      CAPTURE(text);
      const double number = std::strtod(text.c_str(), nullptr);
      REQUIRE(number >= low / scale);
      REQUIRE(number <= high / scale);
    }
    for (int n = low - 3; n <= high + 3; ++n) {
      const std::string text = fmt::format("{}", n / scale);
      CAPTURE(text);
      REQUIRE(takes(grammar, text) == (n >= low && n <= high));
    }
  }
}

TEST_CASE("one-sided and exclusive bounds, and multiples", "[grammar]") {
  check_takes(of_schema(R"({"type": "number", "exclusiveMinimum": 0.5})"),
              {"0.500001", "123456789.25"}, {"0.5", "-1"});
  check_takes(of_schema(R"({"type": "integer", "exclusiveMaximum": -1.5})"), {"-2", "-987654321"},
              {"-1"});
  check_takes(of_schema(R"({"type": "number", "minimum": 1e-9, "maximum": 2e-9})"), {"0.000000001"},
              {"0.000000003"});
  check_takes(of_schema(R"({"type": "integer", "minimum": 1})"), {"1", std::string(18, '9')},
              {"0", std::string(19, '9')});
  check_takes(of_schema(R"({"type": "integer", "multipleOf": 7, "minimum": 15})"), {"21"},
              {"14", "22"});
}

TEST_CASE("random texts of any object are JSON on one line", "[grammar]") {
  std::mt19937 random(3);
  const auto grammar = compile(GrammarKind::kJsonObject, "");
  std::size_t n = 0;
  for (int i = 0; i < effort(60, 10); ++i) {
    const auto text = random_text(grammar, random, 30);
    if (!text) continue;
    ++n;
    CAPTURE(*text);
    REQUIRE(llm::parse_json(*text).is_object());
    REQUIRE(text->find('\n') == std::string::npos);
  }
  REQUIRE(n > 3);
}

}  // namespace llm::test
