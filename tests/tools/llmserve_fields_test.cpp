// The table that reads the fields of a JSON object and describes them.

#include "tests/support/json.h"
#include "tests/support/test.h"
#include "tools/llmserve/conversations/json_fields.h"

namespace llm {
namespace {

struct Targets {
  bool flag = true;
  std::string text;
  float real = 0.5F;
  std::int64_t whole = 3;
  std::optional<std::size_t> maybe;
  const OrderedJson* kept = nullptr;
  bool inner = false;
};

JsonFields inner_fields(Targets& t) {
  JsonFields fields;
  fields.flag("inner", &t.inner);
  return fields;
}

JsonFields fields_of(Targets& t, const JsonFields& inner) {
  JsonFields fields;
  fields.flag("flag", &t.flag, "a flag");
  fields.text("text", &t.text).needed("some text");
  fields.real("real", &t.real, 0.25, 1);
  fields.integer("whole", &t.whole, -1, 10);
  fields.integer("maybe", &t.maybe, 0, 10);
  fields.value("kept", array_of({{"type", "string"}}, true), JsonFields::keep(&t.kept));
  fields.object("object", inner);
  fields.only("only", OrderedJson::array({0, "off"}));
  fields.only("never", OrderedJson::array());
  fields.ignored({"ignored"});
  return fields;
}

}  // namespace

TEST_CASE("a table of fields describes what it reads", "[llmserve]") {
  Targets t;
  const JsonFields inner = inner_fields(t);
  const JsonSchema schema = fields_of(t, inner).schema();
  REQUIRE(schema == test::parse_ordered_json(R"({
    "type": "object", "required": ["text"], "additionalProperties": {"type": "null"},
    "properties": {
      "flag": {"type": ["boolean", "null"], "default": true, "description": "a flag"},
      "text": {"type": "string"},
      "real": {"type": ["number", "null"], "minimum": 0.25, "maximum": 1.0, "default": 0.5},
      "whole": {"type": ["integer", "null"], "minimum": -1, "maximum": 10, "default": 3},
      "maybe": {"type": ["integer", "null"], "minimum": 0, "maximum": 10},
      "kept": {"type": ["array", "null"], "items": {"type": "string"}, "minItems": 1},
      "object": {"type": ["object", "null"], "additionalProperties": {"type": "null"},
                 "properties": {"inner": {"type": ["boolean", "null"], "default": false}}},
      "only": {"enum": [0, "off", null]},
      "never": {"type": "null"},
      "ignored": {"description": "Taken without effect."}
    }})"));
  JsonFields either;
  either.either("a", "b");
  REQUIRE(either.schema()["oneOf"] ==
          test::parse_ordered_json(R"([{"required": ["a"]}, {"required": ["b"]}])"));
}

TEST_CASE("a table of fields reads what it describes, and nothing else", "[llmserve]") {
  Targets t;
  const JsonFields inner = inner_fields(t);
  const JsonFields fields = fields_of(t, inner);
  const OrderedJson all =
      test::parse_json(R"({"flag": false, "text": "a", "real": 1, "whole": -1, "maybe": 7,
    "kept": [1], "object": {"inner": true}, "only": "off", "never": null, "ignored": {"x": []},
    "unknown": null})");
  REQUIRE(fields.read(all).ok());
  REQUIRE((!t.flag && t.text == "a" && t.real == 1 && t.whole == -1 && t.maybe == 7 && t.inner));
  REQUIRE(t.kept == &all["kept"]);
  struct Wrong {
    const char* json;
    const char* error;
  };
  for (const Wrong& wrong : std::vector<Wrong>{
           {R"([])", "at: found [], need an object"},
           {R"({})", "at.text: found nothing, need some text"},
           {R"({"text": null})", "at.text: found nothing, need some text"},
           {R"({"text": 1})", "at.text: found 1, need a string"},
           {R"({"text": "a", "zzz": 1})", "at.zzz: found a field that is not supported"},
           {R"({"zzz": 1})", "at.zzz: found a field that is not supported"},
           {R"({"flag": 1, "zzz": 1})", "at.flag: found 1, need true or false"},
           {R"({"real": 0.2})", "at.real: found 0.2, need a number in 0.25..1"},
           {R"({"real": "1"})", "at.real: found \"1\", need a number"},
           {R"({"whole": 11})", "at.whole: found 11, need an integer in -1..10"},
           {R"({"whole": -2})", "at.whole: found -2"},
           {R"({"whole": 1.0})", "at.whole: found 1.0"},
           {R"({"maybe": 18446744073709551615})", "at.maybe: found 18446744073709551615"},
           {R"({"object": {"inner": 1}})", "at.object.inner: found 1"},
           {R"({"object": {"flag": true}})", "at.object.flag: found a field"},
           {R"({"object": []})", "at.object: found [], need an object"},
           {R"({"only": 1})", "at.only: found 1, need 0 or \"off\" or nothing"},
           {R"({"never": false})", "at.never: found false, need nothing"},
       }) {
    const Status read = fields.read(test::parse_json(wrong.json), "at.");
    CAPTURE(wrong.json);
    REQUIRE_FALSE(read.ok());
    INFO(read.error().to_string());
    CHECK(read.error().to_string().find(wrong.error) != std::string::npos);
  }
  JsonFields either;
  either.ignored({"a", "b"});
  either.either("a", "b");
  CHECK(either.read(OrderedJson{{"b", 1}}).ok());
  CHECK(either.read(OrderedJson::object()).error().message == "found nothing, need either a or b");
  CHECK(either.read(OrderedJson{{"a", 1}, {"b", 1}}).error().message ==
        "found b as well, need either a or b");
}

}  // namespace llm
