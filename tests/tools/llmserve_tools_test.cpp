// Conversations in every API's shape: one text whatever the shape, calls that must be made,
// results.

#include "tests/tools/llmserve_process.h"

namespace llm::test {
namespace {

const Json kParameters = R"({"type": "object", "properties": {"n": {"enum": [1, 2, "x"]}},
    "required": ["n"], "additionalProperties": false})"_j;
const Json kTools = {
    {{"type", "function"}, {"function", {{"name", "g"}, {"parameters", kParameters}}}}};
const Json kQuestion = question("Tell me of a dog.");

/// How an API asks a question, lets one function be called, and answers.
struct Shape {
  const char* path;
  const char* messages;  ///< the field
  Json limits;
  Json must_call;     ///< fields; null: it has none for that
  const char* text;   ///< where the answer's text is
  const char* piece;  ///< of a part of a stream, where a piece of text is
  const char* call;   ///< where a call is
  Json called;        ///< what else an answer says that has one

  Json body(const Json& conversation, const Json& more = Json::object()) const {
    return Json{{messages, conversation}} | limits | more;
  }
};

const Json kLimits = "{'max_tokens': 90, 'seed': 3, 'temperature': 0}"_j;
const std::array<Shape, 4> kShapes = {{
    {"/v1/chat/completions", "messages", kLimits,
     Json{{"tools", kTools}, {"tool_choice", "required"}}, "/choices/0/message/content",
     "/choices/0/delta/content", "/choices/0/message/tool_calls/0/function",
     "{'choices': [{'finish_reason': 'tool_calls', 'message': {'content': null}}]}"_j},
    {"/v1/responses", "input", "{'max_output_tokens': 90, 'seed': 3, 'temperature': 0}"_j,
     Json{{"tools", {{{"type", "function"}, {"name", "g"}, {"parameters", kParameters}}}},
          {"tool_choice", "required"}},
     "/output/0/content/0/text", "/delta", "/output/0",
     "{'output': [{'type': 'function_call'}]}"_j},
    {"/v1/messages", "messages", kLimits,
     Json{{"tools", {{{"name", "g"}, {"input_schema", kParameters}}}},
          {"tool_choice", {{"type", "any"}}}},
     "/content/0/text", "/delta/text", "/content/0", "{'stop_reason': 'tool_use'}"_j},
    {"/api/chat", "messages",
     R"({"stream": false, "options": {"num_predict": 90, "seed": 3, "temperature": 0, "top_k": 0,
        "top_p": 1}})"_j,
     nullptr, "/message/content", "/message/content", "", nullptr},
}};

/// The value, seen to be one of these.
void must_be_in(const Json& value, const Json& values) {
  CAPTURE(value, values);
  CHECK(std::ranges::find(values, value) != values.end());
}

/// {"name", "arguments"} of the call in an answer, the latter an object.
Json call_of(const Shape& shape, const Reply& reply) {
  reply.must_match(shape.called);
  const Json call = reply.at(shape.call);
  const Json& arguments = call.contains("input") ? call["input"] : call["arguments"];
  return {
      {"name", call["name"]},
      {"arguments", arguments.is_string() ? parse_json(arguments.get<std::string>()) : arguments}};
}

}  // namespace

TEST_CASE("an answer's text is the same in the shape of every API", "[llmserve][tools]") {
  Server server = serve_fable({"--chat-template", "zephyr"});
  const std::string text =
      server.post(kShapes[0].path, kShapes[0].body(kQuestion)).at(kShapes[0].text);
  CHECK(text.size() > 20);
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.path);
    CHECK(server.post(shape.path, shape.body(kQuestion)).at(shape.text) == text);
    const Reply streamed = server.post(shape.path, shape.body(kQuestion, "{'stream': true}"_j));
    CHECK(joined(parts_of(streamed.body), shape.piece) == text);
  }
}

TEST_CASE("a receipt knows that control tokens are spelled in the text", "[llmserve][tools]") {
  TinyGguf model = TinyGguf::llama();
  model.set_pieces({{269, "<tool_call>"}}, 3);
  model.set_string(
      "tokenizer.chat_template",
      "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: "
      "{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}"
      "</tool_call>{% endfor %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}a: ");
  const TinyModel tiny;
  tiny.write("tiny.gguf", model.bytes());
  Server server = tiny.serve();
  const Json body = "{'receipt': true, 'max_tokens': 3, 'logit_bias': {'269': 100}}"_j;
  const Json receipt = server.post("/v1/chat/completions", Json{{"messages", kQuestion}} | body)
                           .at("/choices/0/receipt");
  REQUIRE_THAT(receipt["text"].get<std::string>(), Contains("<tool_call>"));
  replay(receipt, 0, tiny / "tiny.gguf");
}

TEST_CASE("a call that must be made is made, and its result is read", "[llmserve][tools]") {
  Server server = serve_fable({"--chat-template", "zephyr", "--api-key", "k"});
  const auto ask = [&](const char* path, const Json& body, const char* key = "x-api-key: k\r\n") {
    return server.ask(post_text(path, json_text(body), key));
  };
  ask("/v1/messages", Json::object(), "x-api-key: other\r\n").must_be(401);
  std::set<Json> calls;
  for (const Shape& shape : kShapes)
    if (!shape.must_call.is_null())
      calls.insert(call_of(shape, ask(shape.path, shape.body(kQuestion, shape.must_call))));
  REQUIRE(calls.size() == 1);
  const Reply openai = ask(kShapes[0].path, kShapes[0].body(kQuestion, kShapes[0].must_call));
  CHECK(openai.at("/choices/0/message/tool_calls/0/id").get<std::string>().size() == 9);
  const Json call = *calls.begin();
  CHECK(call["name"] == "g");
  must_be_in(call["arguments"]["n"], "[1, 2, 'x']"_j);
  // A call that a limit cut has no arguments that could be an object.
  ask("/v1/messages", kShapes[2].body(kQuestion, kShapes[2].must_call | "{'max_tokens': 12}"_j))
      .must_match("{'content': [], 'stop_reason': 'max_tokens'}"_j);

  // The call and its result come back; every API tells the model the same.
  const std::array<Json, 4> histories = {
      R"([{"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
           "function": {"name": "g", "arguments": "{\"n\":2}"}}]},
          {"role": "tool", "tool_call_id": "c1", "content": "seven"}])"_j,
      R"([{"type": "function_call", "call_id": "c1", "name": "g", "arguments": "{\"n\":2}"},
          {"type": "function_call_output", "call_id": "c1", "output": "seven"}])"_j,
      R"([{"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "g",
           "input": {"n": 2}}]},
          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1",
           "content": "seven"}]}])"_j,
      R"([{"role": "assistant", "tool_calls": [{"function": {"name": "g", "arguments": {"n": 2}}}]},
          {"role": "tool", "content": "seven"}])"_j};
  const auto answer = [&](std::size_t i, const Json& history) -> std::string {
    Json messages = kQuestion;
    for (const Json& one : history) messages.push_back(one);
    return ask(kShapes[i].path, kShapes[i].body(messages)).at(kShapes[i].text);
  };
  const std::string text = answer(0, histories[0]);
  for (std::size_t i = 1; i < kShapes.size(); ++i) CHECK(answer(i, histories[i]) == text);
  // What a result says is seen.
  Json other = histories[0];
  other[1]["content"] = "a very different thing";
  CHECK(answer(0, other) != text);
}

TEST_CASE("what a conversation says reaches the template", "[llmserve][tools]") {
  const ScratchDirectory directory;
  const std::string jinja = directory.write(
      "t.jinja",
      "{% for t in tools or [] %}T{{ t.function.name }}{% endfor %}{% for m in messages %}"
      "({{ m.role }} {{ m.name }} {{ m.reasoning_content }} {{ m.content }}{% for c in "
      "m.tool_calls or [] %}<tool_call>{{ {'name': c.function.name, 'arguments': "
      "c.function.arguments} | tojson }}</tool_call>{% endfor %}){% endfor %}");
  Server server = serve_fable({"--chat-template", jinja});
  const auto ids = [&](const Json& messages) { return server.tokens({{"messages", messages}}); };
  const Json asked = {{"messages", question("Ask.")}};
  CHECK(ids(question(R"([{"type": "text", "text": "As"}, {"type": "text", "text": "k."}])"_j)) ==
        server.tokens(asked));
  Json chat = R"([{"role": "user", "content": "Ask."},
      {"role": "assistant", "content": "Well.", "reasoning_content": "hm", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "g", "arguments": ""}},
        {"id": "c2", "type": "function", "function": {"name": "other", "arguments": "{\"n\":2}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "one"},
      {"role": "tool", "tool_call_id": "c2", "content": "two"}])"_j;
  require_words(server.read_as({{"messages", chat}}),
                {"(assistant  hm Well.", R"(<tool_call>{"name": "g", "arguments": {}}</tool_call>)",
                 R"({"name": "other", "arguments": {"n": 2}})", "(tool g  one)(tool other  two)"});
  CHECK(server.read_as(asked | Json{{"tools", kTools}}).starts_with("Tg("));
  CHECK(server.tokens(asked | Json{{"tools", kTools}, {"tool_choice", "none"}}) ==
        server.tokens(asked));

  // The other APIs say the same, in as many tokens. They have no thoughts to give back.
  chat[1].erase("reasoning_content");
  chat[1]["tool_calls"][0]["function"]["arguments"] = "{}";
  const std::size_t n = ids(chat).size();
  const Json blocks = R"([{"role": "user", "content": "Ask."},
      {"role": "assistant", "content": [{"type": "text", "text": "We"}, {"type": "text", "text": "ll."},
        {"type": "tool_use", "id": "c1", "name": "g", "input": {}},
        {"type": "tool_use", "id": "c2", "name": "other", "input": {"n": 2}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "one"},
        {"type": "tool_result", "tool_use_id": "c2", "content": "two"},
        {"type": "text", "text": "Go on."}]}])"_j;
  chat.push_back(message("user", "Go on."));
  server.post("/v1/messages/count_tokens", {{"messages", blocks}})
      .must_match({{"input_tokens", ids(chat).size()}});
  const Json lines = R"([{"role": "user", "content": "Ask."},
      {"role": "assistant", "content": "Well.", "tool_calls": [{"function": {"name": "g",
        "arguments": {}}}, {"function": {"name": "other", "arguments": {"n": 2}}}]},
      {"role": "tool", "content": "one"}, {"role": "tool", "content": "two"}])"_j;
  server
      .post("/api/chat",
            Json{{"messages", lines}} | "{'stream': false, 'options': {'num_predict': 1}}"_j)
      .must_match({{"prompt_eval_count", n}});
}

TEST_CASE("a call's arguments come as they are written", "[llmserve][tools]") {
  Server server = serve_fable({"--chat-template", "zephyr"});
  const auto body = [](std::size_t i, const char* schema) {
    Json changed = kShapes[i].body(kQuestion, kShapes[i].must_call);
    changed["tools"][0][Json::json_pointer(schema)]["properties"]["n"] =
        "{'type': 'string', 'minLength': 12, 'maxLength': 16}"_j;
    return changed;
  };
  const auto parts = [&](std::size_t i, const char* schema) {
    return parts_of(server.post(kShapes[i].path, body(i, schema) | "{'stream': true}"_j).body);
  };
  const Json whole =
      call_of(kShapes[0], server.post(kShapes[0].path, body(0, "/function/parameters")));
  std::string reason;
  std::size_t n = 0;
  const auto choices = parts(0, "/function/parameters");
  for (const Json& part : choices) {
    const Json& delta = part["choices"][0]["delta"];
    if (!delta.contains("tool_calls")) continue;
    const Json& call = delta["tool_calls"][0];
    CHECK(call["index"] == 0);
    CHECK(call.contains("id") == (n == 0));
    if (n++ == 0) CHECK(call["function"]["name"] == whole["name"]);
  }
  CHECK(n > 3);
  CHECK(joined(choices, "/choices/0/finish_reason") == "tool_calls");
  const std::string arguments = joined(choices, "/choices/0/delta/tool_calls/0/function/arguments");
  CHECK(parse_json(arguments) == whole["arguments"]);
  // The same by the other APIs.
  const std::string input = joined(parts(2, "/input_schema"), "/delta/partial_json");
  CHECK(parse_json(input) == whole["arguments"]);
  const auto events = parts(1, "/parameters");
  const std::string pieces = joined(events, "/delta");
  CHECK(parse_json(pieces) == whole["arguments"]);
  for (const Json& part : events)
    if (part["type"] == "response.function_call_arguments.done") CHECK(part["arguments"] == pieces);
}

namespace {

/// A request for a call of `mk` with that schema; its seed lets a recursion end within the tokens.
Json forced(const Json& parameters, bool is_strict = false) {
  Json function = "{'name': 'mk', 'description': 'd'}"_j;
  if (!parameters.is_null()) function["parameters"] = parameters;
  if (is_strict) function["strict"] = true;
  return "{'temperature': 1, 'seed': 3, 'max_tokens': 200, 'tool_choice': 'required'}"_j |
         Json{{"messages", kQuestion}, {"tools", {{{"type", "function"}, {"function", function}}}}};
}

Json arguments_of(const Reply& reply) {
  const std::string text = reply.at("/choices/0/message/tool_calls/0/function/arguments");
  return parse_json(text);
}

Json with(const Json& properties, const Json& more = Json::object()) {
  Json required = Json::array();
  for (const auto& [name, schema] : properties.items()) required.push_back(name);
  return Json{{"type", "object"}, {"properties", properties}, {"required", required}} | more;
}

const char* const kXml =
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|{{ m.role }}|>{{ "
    "m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n<function={{ c.function.name }}>\n"
    "{% for k, v in c.function.arguments | items %}<parameter={{ k }}>\n{{ v if v is string else v "
    "| tojson }}\n</parameter>\n{% endfor %}</function>\n</tool_call>\n{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";
const char* const kHarmony =
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|start|>{{ m.role }}"
    "{% for c in m.tool_calls or [] %} to=functions.{{ c.function.name }}<|channel|>commentary "
    "json<|message|>{{ c.function.arguments | tojson }}<|call|>{% endfor %}{{ m.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}";
const char* const kPython =
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|{{ m.role }}|>{{ "
    "m.content }}{% if m.tool_calls %}[{% for c in m.tool_calls %}{{ c.function.name }}({% for k, "
    "v in c.function.arguments | items %}{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif "
    "%}{% endfor %}){% if not loop.last %}, {% endif %}{% endfor %}]{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

}  // namespace

TEST_CASE("a call that must be made is of its function's own schema", "[llmserve][tools]") {
  const ScratchDirectory directory;
  const std::string jinja = GENERATE(as<std::string>(), "zephyr", kXml, kHarmony, kPython);
  CAPTURE(jinja);
  Server server = serve_fable(
      {"--chat-template", jinja == "zephyr" ? jinja : directory.write("t.jinja", jinja)});
  for (const bool is_strict : {false, true}) {
    const auto ask = [&](const Json& schema) {
      return arguments_of(server.post("/v1/chat/completions", forced(schema, is_strict)));
    };
    const Json items = "[{'name': 'pen'}, {'name': 'cup'}]"_j;
    for (const std::string place :
         {"#/$defs/It em", "#/definitions/It%20em", "#thing", "https://x.y/z#/$defs/It em"}) {
      CAPTURE(place);
      Json item = with("{'name': {'enum': ['pen', 'cup']}}"_j);
      if (place == "#thing") item["$anchor"] = "thing";
      Json more = {{place.starts_with("#/def") ? "definitions" : "$defs", {{"It em", item}}}};
      if (place.starts_with("https")) more["$id"] = "https://x.y/z";
      must_be_in(ask(with({{"x", {{"$ref", place}}}}, more))["x"], items);
      must_be_in(ask(more | Json{{"$ref", place}}), items);
    }
    // "#" is the function's schema, and "name" its own property.
    must_be_in(
        ask(with("{'name': {'enum': ['ab', 'cd']}, 'nickname': {'$ref': '#/properties/name'}}"_j))
            ["nickname"],
        "['ab', 'cd']"_j);
    const Json tree = ask(with(
        "{'label': {'enum': ['a', 'b']}, 'kids': {'type': 'array', 'maxItems': 1, 'items': {'$ref': '#'}}}"_j));
    must_be_in(tree["label"], "['a', 'b']"_j);
    for (const Json& kid : tree["kids"]) must_be_in(kid["label"], "['a', 'b']"_j);
    for (const Json& empty : {"{'type': 'object', 'properties': {}}"_j, Json(), Json::object()})
      CHECK(ask(empty) == Json::object());
    // In pieces that the small model's context holds with the answer.
    Json several = Json::object();
    for (
        const Json& properties :
        {R"({"text": {"type": "string", "minLength": 2, "maxLength": 5},
              "day": {"type": "string", "pattern": "^(mon|tue)$"}})"_j,
         R"({"n": {"type": "integer", "minimum": 3, "maximum": 4}, "flag": {"type": "boolean"}})"_j,
         R"({"list": {"type": "array", "items": {"enum": [1, "x"]}, "minItems": 1, "maxItems": 2},
              "perhaps": {"anyOf": [{"enum": ["y"]}, {"type": "null"}]}})"_j})
      several.update(ask(with(properties)));
    CHECK(several["text"].is_string());
    must_be_in(several["day"], "['mon', 'tue']"_j);
    must_be_in(several["n"], "[3, 4]"_j);
    must_be_in(several["flag"], "[true, false]"_j);
    must_be_in(several["list"].size(), "[1, 2]"_j);
    must_be_in(several["perhaps"], "[null, 'y']"_j);
  }
}

TEST_CASE("what is not enforced of a function is left out and said", "[llmserve][tools]") {
  Server server = serve_fable({"--chat-template", "zephyr"});
  const std::string place = "tools/0/function/parameters/properties/k";
  for (const auto& [schema, dropped] : std::vector<std::pair<Json, std::string>>{
           {"{'type': 'string', 'contentEncoding': 'base64', 'maxLength': 4}"_j, "contentEncoding"},
           {"{'type': 'string', 'format': 'binary', 'maxLength': 4}"_j, "format"},
           {"{'type': 'string', 'format': 'date', 'minLength': 1}"_j, "minLength"},
           {R"({"type": "string", "pattern": "^(?=.*\\d).+$", "maxLength": 4})"_j, "pattern"},
           {"{'type': 'string', 'minLength': 1, 'pattern': '^[a-z]{1,3}$'}"_j, "minLength"},
           {"{'type': 'string', 'nullable': true, 'maxLength': 4}"_j, "nullable"},
           {"{'type': 'string', 'x-order': 1, 'maxLength': 4}"_j, "x-order"},
           {"{'type': 'number', 'multipleOf': 0.01, 'minimum': 1, 'maximum': 2}"_j, "multipleOf"},
           {"{'type': 'array', 'items': {'enum': [1, 2]}, 'uniqueItems': true, 'maxItems': 3}"_j,
            "uniqueItems"},
           {"{'oneOf': [{'type': 'boolean'}, {'enum': [true, 1]}]}"_j, "oneOf"}}) {
    CAPTURE(schema);
    const Json parameters = with({{"k", schema}}, "{'additionalProperties': false}"_j);
    const Reply reply = server.post("/v1/chat/completions", forced(parameters));
    CHECK(arguments_of(reply).size() == 1);
    CHECK(reply.header("x-not-enforced") == place + "/" + dropped);
    const Reply strict = server.post("/v1/chat/completions", forced(parameters, true)).must_be(400);
    CHECK_THAT(strict.json()["error"]["param"].get<std::string>(), Contains(place));
  }
  const Json plain = with("{'k': {'type': 'boolean'}}"_j);
  CHECK(server.post("/v1/chat/completions", forced(plain)).header("x-not-enforced").empty());
}

}  // namespace llm::test
