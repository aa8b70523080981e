// Conversations in every API's shape: one text whatever the shape, calls that must be made,
// results.

#include "tests/tools/llmserve_process.h"
#include "tools/llmserve/conversations/chat_roles.h"
#include "tools/llmserve/conversations/conversations.h"

namespace llm::test {
namespace {

const Json kParameters = {{"type", "object"},
                          {"properties", {{"n", {{"enum", {1, 2, "x"}}}}}},
                          {"required", {"n"}},
                          {"additionalProperties", false}};
const Json kFunction = {{"name", "g"}, {"parameters", kParameters}};
const Json kTools = {{{"type", "function"}, {"function", kFunction}}};

/// The same question, with what `more` adds, by each API; and the answer's parts: text, thoughts,
/// calls.
struct Shape {
  const char* path;
  Json (*body)(const Json& messages, bool must_call);
  Json (*call)(const Json& answer);  ///< {"name", "arguments"}, the latter an object
  std::string (*text)(const Json& answer);
};

const std::array<Shape, 4> kShapes = {{
    {"/v1/chat/completions",
     [](const Json& messages, bool must_call) {
       Json body = {{"messages", messages}, {"max_tokens", 90}, {"seed", 3}, {"temperature", 0}};
       if (must_call) body.update({{"tools", kTools}, {"tool_choice", "required"}});
       return body;
     },
     [](const Json& answer) {
       const Json& choice = answer["choices"][0];
       REQUIRE(choice["finish_reason"] == "tool_calls");
       REQUIRE(choice["message"]["content"].is_null());
       const Json& call = choice["message"]["tool_calls"][0];
       REQUIRE(call["id"].get<std::string>().size() == 9);
       Json function = call["function"];
       function["arguments"] = test::parse_json(function["arguments"].get<std::string>());
       return function;
     },
     [](const Json& answer) -> std::string { return answer["choices"][0]["message"]["content"]; }},
    {"/v1/responses",
     [](const Json& messages, bool must_call) {
       Json body = {
           {"input", messages}, {"max_output_tokens", 90}, {"seed", 3}, {"temperature", 0}};
       Json flat = kFunction;
       flat["type"] = "function";
       if (must_call) body.update({{"tools", {flat}}, {"tool_choice", "required"}});
       return body;
     },
     [](const Json& answer) {
       const Json& item = answer["output"][0];
       REQUIRE(item["type"] == "function_call");
       return Json{{"name", item["name"]},
                   {"arguments", test::parse_json(item["arguments"].get<std::string>())}};
     },
     [](const Json& answer) -> std::string { return answer["output"][0]["content"][0]["text"]; }},
    {"/v1/messages",
     [](const Json& messages, bool must_call) {
       Json body = {{"messages", messages}, {"max_tokens", 90}, {"seed", 3}, {"temperature", 0}};
       const Json tool = {{"name", "g"}, {"input_schema", kParameters}};
       if (must_call) body.update({{"tools", {tool}}, {"tool_choice", {{"type", "any"}}}});
       return body;
     },
     [](const Json& answer) {
       const Json& block = answer["content"][0];
       REQUIRE(answer["stop_reason"] == "tool_use");
       return Json{{"name", block["name"]}, {"arguments", block["input"]}};
     },
     [](const Json& answer) -> std::string { return answer["content"][0]["text"]; }},
    {"/api/chat",
     [](const Json& messages, bool must_call) {
       Json body = {
           {"messages", messages},
           {"stream", false},
           {"options",
            {{"num_predict", 90}, {"seed", 3}, {"temperature", 0}, {"top_k", 0}, {"top_p", 1}}}};
       if (must_call) body["tools"] = kTools;  // it has no tool_choice
       return body;
     },
     nullptr, [](const Json& answer) -> std::string { return answer["message"]["content"]; }},
}};

const Json kQuestion = {{{"role", "user"}, {"content", "Tell me of a dog."}}};

/// The data of a stream's events, or its lines.
std::vector<Json> stream_of(const std::string& body) {
  std::vector<Json> parts;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("data: ")) line.erase(0, 6);
    if (line.starts_with('{')) parts.push_back(test::parse_json(line));
  }
  return parts;
}

}  // namespace

TEST_CASE("an answer's text is the same in the shape of every API", "[llmserve][tools]") {
  Server server = serve_fable({"--chat-template", "zephyr"});
  std::string text;
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.path);
    Json body = shape.body(kQuestion, false);
    const Json whole = server.post(shape.path, body).must_be(200).json();
    if (text.empty()) text = shape.text(whole);
    CHECK(shape.text(whole) == text);
    body["stream"] = true;
    std::string pieces;
    for (const Json& part : stream_of(server.post(shape.path, body).body)) {
      if (part.contains("choices")) pieces += part["choices"][0]["delta"].value("content", "");
      if (part.value("type", "") == "response.output_text.delta") pieces += part["delta"];
      if (part.value("type", "") == "content_block_delta") pieces += part["delta"]["text"];
      if (part.contains("message") && part.contains("done")) pieces += part["message"]["content"];
    }
    CHECK(pieces == text);
  }
  CHECK(text.size() > 20);
}

TEST_CASE("a receipt knows that control tokens are spelled in the text", "[llmserve][tools]") {
  TinyGguf model = TinyGguf::llama();
  auto pieces = TinyGguf::pieces();
  auto kinds = TinyGguf::kinds();
  pieces[269] = "<tool_call>";
  kinds[269] = 3;
  model.set_strings("tokenizer.ggml.tokens", pieces);
  model.set_array("tokenizer.ggml.token_type", GgufType::kInt32, kinds);
  model.set_string(
      "tokenizer.chat_template",
      "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: "
      "{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}"
      "</tool_call>{% endfor %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}a: ");
  const TinyModel tiny;
  tiny.write("tiny.gguf", model.bytes());
  Server server = tiny.serve();
  const Json choice = server
                          .post("/v1/chat/completions", {{"messages", kQuestion},
                                                         {"receipt", true},
                                                         {"max_tokens", 3},
                                                         {"logit_bias", {{"269", 100}}}})
                          .json()["choices"][0];
  REQUIRE_THAT(choice["receipt"]["text"].get<std::string>(), Contains("<tool_call>"));
  tiny.write("r.json", json_text(choice["receipt"]));
  tiny.shell("llmcheck tiny.gguf --replay r.json -t 1").must_end(0);
}

TEST_CASE("a call that must be made is made, and its result is read", "[llmserve][tools]") {
  Server server = serve_fable({"--chat-template", "zephyr", "--api-key", "k"});
  const auto ask = [&](const char* path, const Json& body, const char* key = "x-api-key: k\r\n") {
    return server.ask(post_text(path, json_text(body), key));
  };
  ask("/v1/messages", Json::object(), "x-api-key: other\r\n").must_be(401);
  Json call;
  for (const Shape& shape : kShapes) {
    if (shape.call == nullptr) continue;
    CAPTURE(shape.path);
    const Json made = shape.call(ask(shape.path, shape.body(kQuestion, true)).must_be(200).json());
    if (call.is_null()) call = made;
    CHECK(made == call);
  }
  // A call that a limit cut has no arguments that could be an object.
  Json cut = kShapes[2].body(kQuestion, true);
  cut["max_tokens"] = 12;
  const Json answer = ask("/v1/messages", cut).must_be(200).json();
  CHECK(answer["content"] == Json::array());
  CHECK(answer["stop_reason"] == "max_tokens");
  CHECK(call["name"] == "g");
  CHECK((call["arguments"]["n"] == 1 || call["arguments"]["n"] == 2 ||
         call["arguments"]["n"] == "x"));

  // The call and its result come back; every API tells the model the same.
  const std::string arguments = R"({"n":2})";
  Json chat = kQuestion;
  chat.push_back({{"role", "assistant"},
                  {"content", nullptr},
                  {"tool_calls",
                   {{{"id", "c1"},
                     {"type", "function"},
                     {"function", {{"name", "g"}, {"arguments", arguments}}}}}}});
  chat.push_back({{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "seven"}});
  Json items = kQuestion;
  items.push_back(
      {{"type", "function_call"}, {"call_id", "c1"}, {"name", "g"}, {"arguments", arguments}});
  items.push_back({{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "seven"}});
  Json blocks = kQuestion;
  blocks.push_back(
      {{"role", "assistant"},
       {"content", {{{"type", "tool_use"}, {"id", "c1"}, {"name", "g"}, {"input", {{"n", 2}}}}}}});
  blocks.push_back(
      {{"role", "user"},
       {"content", {{{"type", "tool_result"}, {"tool_use_id", "c1"}, {"content", "seven"}}}}});
  Json lines = kQuestion;
  lines.push_back({{"role", "assistant"},
                   {"tool_calls", {{{"function", {{"name", "g"}, {"arguments", {{"n", 2}}}}}}}}});
  lines.push_back({{"role", "tool"}, {"content", "seven"}});
  const std::array<Json, 4> histories = {chat, items, blocks, lines};
  std::string text;
  for (std::size_t i = 0; i < kShapes.size(); ++i) {
    CAPTURE(kShapes[i].path);
    const Reply reply = ask(kShapes[i].path, kShapes[i].body(histories[i], false)).must_be(200);
    if (text.empty()) text = kShapes[i].text(reply.json());
    CHECK(kShapes[i].text(reply.json()) == text);
  }
  // What a result says is seen.
  chat.back()["content"] = "a very different thing";
  const Reply other = ask("/v1/chat/completions", kShapes[0].body(chat, false));
  CHECK(kShapes[0].text(other.json()) != text);
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
  const auto ids = [&](const Json& messages, const Json& more = Json::object()) {
    Json body = {{"messages", messages}};
    body.update(more);
    return server.tokens(body);
  };
  const auto text = [&](const Json& messages, const Json& more = Json::object()) {
    return server.post("/detokenize", {{"tokens", ids(messages, more)}})
        .json()["prompt"]
        .get<std::string>();
  };
  const Json user = {{"role", "user"}, {"content", "Ask."}};
  const Json asked = Json::array({user});
  const auto of = [](const char* id, const char* name, const char* arguments) -> Json {
    return {
        {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
  };
  const auto result = [](const char* id, const char* what) -> Json {
    return {{"role", "tool"}, {"tool_call_id", id}, {"content", what}};
  };
  Json parts = user;
  parts["content"] = {{{"type", "text"}, {"text", "As"}}, {{"type", "text"}, {"text", "k."}}};
  CHECK(ids(Json::array({parts})) == ids(asked));
  const Json calls = {{"role", "assistant"},
                      {"content", "Well."},
                      {"reasoning_content", "hm"},
                      {"tool_calls", {of("c1", "g", ""), of("c2", "other", R"({"n":2})")}}};
  const Json chat = {user, calls, result("c1", "one"), result("c2", "two")};
  const std::string seen = text(chat);
  CHECK_THAT(seen, Contains("(assistant  hm Well."));
  CHECK_THAT(seen, Contains(R"(<tool_call>{"name": "g", "arguments": {}}</tool_call>)"));
  CHECK_THAT(seen, Contains(R"({"name": "other", "arguments": {"n": 2}})"));
  CHECK_THAT(seen, Contains("(tool g  one)(tool other  two)"));
  CHECK(text(asked, {{"tools", kTools}}).starts_with("Tg("));
  CHECK(ids(asked, {{"tools", kTools}, {"tool_choice", "none"}}) == ids(asked));

  // The other APIs say the same, in as many tokens. They have no thoughts to give back.
  Json plain = chat;
  plain[1].erase("reasoning_content");
  plain[1]["tool_calls"][0]["function"]["arguments"] = "{}";
  const std::size_t n = ids(plain).size();
  const Json blocks = {
      user,
      {{"role", "assistant"},
       {"content",
        {{{"type", "text"}, {"text", "We"}},
         {{"type", "text"}, {"text", "ll."}},
         {{"type", "tool_use"}, {"id", "c1"}, {"name", "g"}, {"input", Json::object()}},
         {{"type", "tool_use"}, {"id", "c2"}, {"name", "other"}, {"input", {{"n", 2}}}}}}},
      {{"role", "user"},
       {"content",
        {{{"type", "tool_result"}, {"tool_use_id", "c1"}, {"content", "one"}},
         {{"type", "tool_result"}, {"tool_use_id", "c2"}, {"content", "two"}},
         {{"type", "text"}, {"text", "Go on."}}}}}};
  plain.push_back({{"role", "user"}, {"content", "Go on."}});
  CHECK(server.post("/v1/messages/count_tokens", {{"messages", blocks}}).json()["input_tokens"] ==
        ids(plain).size());
  const Json lines = {user,
                      {{"role", "assistant"},
                       {"content", "Well."},
                       {"tool_calls",
                        {{{"function", {{"name", "g"}, {"arguments", Json::object()}}}},
                         {{"function", {{"name", "other"}, {"arguments", {{"n", 2}}}}}}}}},
                      {{"role", "tool"}, {"content", "one"}},
                      {{"role", "tool"}, {"content", "two"}}};
  const Json answer =
      server
          .post("/api/chat",
                {{"messages", lines}, {"stream", false}, {"options", {{"num_predict", 1}}}})
          .json();
  CAPTURE(answer);
  CHECK(answer["prompt_eval_count"] == n);
}

TEST_CASE("conversations of every API are read as one", "[llmserve][tools]") {
  const auto ordered = [](const char* json) { return test::parse_ordered_json(json); };
  RequestedChat blocks;
  require_ok(read_anthropic_messages(
      ordered(R"([{"role": "user", "content": [{"type": "text", "text": "First."},
                  {"type": "tool_result", "tool_use_id": "c", "content": "last"}]}])"),
      "messages", blocks));
  REQUIRE(blocks.messages.size() == 2);
  CHECK(blocks.messages[0]["content"] == "First.");
  CHECK(blocks.messages[1]["content"] == "last");
  REQUIRE(blocks.parallel_calls);
  require_ok(read_anthropic_choice(ordered(R"({"type": "any", "disable_parallel_tool_use": true})"),
                                   "tool_choice", blocks));
  CHECK_FALSE(blocks.parallel_calls);

  RequestedChat lines;
  require_ok(read_ollama_messages(
      ordered(R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}},
                                                       {"function": {"name": "g", "arguments": {}}}]},
                  {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}])"),
      "messages", lines));
  CHECK(lines.messages[1]["name"] == "f");
  CHECK(lines.messages[2]["name"] == "g");

  // As a template wants them: content of a reply that has calls alone, arguments, or all in words.
  ReplyFormat format;
  format.knows_tools = true;
  format.null_content = GENERATE(false, true);
  format.text_arguments = GENERATE(false, true);
  RequestedChat adapted = lines;
  adapt_chat(format, ChatRoles(), adapted);
  CHECK(adapted.messages[0]["content"].is_null() == format.null_content);
  CHECK(adapted.messages[0]["tool_calls"][0]["function"]["arguments"].is_string() ==
        format.text_arguments);
  RequestedChat spelled = lines;
  adapt_chat(ReplyFormat(), ChatRoles(), spelled);
  REQUIRE(spelled.messages.size() == 2);
  CHECK(
      spelled.messages[1] ==
      ordered(
          R"({"role": "user", "content": "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"})"));
}

TEST_CASE("a call's arguments come as they are written", "[llmserve][tools]") {
  Server server = serve_fable({"--chat-template", "zephyr"});
  Json body = kShapes[0].body(kQuestion, true);
  body["tools"][0]["function"]["parameters"]["properties"]["n"] = {
      {"type", "string"}, {"minLength", 12}, {"maxLength", 16}};
  const Json whole = kShapes[0].call(server.post("/v1/chat/completions", body).json());
  body["stream"] = true;
  std::string arguments;
  std::string reason;
  std::size_t n = 0;
  for (const Json& part : stream_of(server.post("/v1/chat/completions", body).body)) {
    const Json& choice = part["choices"][0];
    if (choice["finish_reason"].is_string()) reason = choice["finish_reason"];
    if (!choice["delta"].contains("tool_calls")) continue;
    const Json& call = choice["delta"]["tool_calls"][0];
    CHECK(call["index"] == 0);
    CHECK(call.contains("id") == (n == 0));
    if (n++ == 0) CHECK(call["function"]["name"] == whole["name"]);
    arguments += call["function"].value("arguments", "");
  }
  CHECK(n > 3);
  CHECK(reason == "tool_calls");
  CHECK(test::parse_json(arguments) == whole["arguments"]);

  // The same by the other APIs.
  Json blocks = kShapes[2].body(kQuestion, true);
  blocks["tools"][0]["input_schema"] = body["tools"][0]["function"]["parameters"];
  blocks["stream"] = true;
  std::string input;
  for (const Json& part : stream_of(server.post("/v1/messages", blocks).body))
    if (part["type"] == "content_block_delta") input += part["delta"]["partial_json"];
  CHECK(test::parse_json(input) == whole["arguments"]);
  Json items = kShapes[1].body(kQuestion, true);
  items["tools"][0]["parameters"] = blocks["tools"][0]["input_schema"];
  items["stream"] = true;
  std::string pieces;
  for (const Json& part : stream_of(server.post("/v1/responses", items).body)) {
    if (part["type"] == "response.function_call_arguments.delta") pieces += part["delta"];
    if (part["type"] == "response.function_call_arguments.done") CHECK(part["arguments"] == pieces);
  }
  CHECK(test::parse_json(pieces) == whole["arguments"]);
}

namespace {

/// A request for a call of `mk` with that schema.
Json forced(const Json& parameters, bool is_strict = false) {
  Json function = {{"name", "mk"}, {"description", "d"}};
  if (!parameters.is_null()) function["parameters"] = parameters;
  if (is_strict) function["strict"] = true;
  return {{"messages", kQuestion},
          {"temperature", 1},
          {"seed", 3},  // so that a recursion always ends within the tokens
          {"max_tokens", 200},
          {"tool_choice", "required"},
          {"tools", {{{"type", "function"}, {"function", function}}}}};
}

Json arguments_of(const Reply& reply) {
  const Json choice = reply.must_be(200).json()["choices"][0];
  CAPTURE(choice);
  REQUIRE(choice["message"].contains("tool_calls"));
  return test::parse_json(
      choice["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>());
}

Json with(const Json& properties, const Json& more = Json::object()) {
  Json required = Json::array();
  for (const auto& [name, schema] : properties.items()) required.push_back(name);
  Json schema = {{"type", "object"}, {"properties", properties}, {"required", required}};
  schema.update(more);
  return schema;
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
    "v "
    "in c.function.arguments | items %}{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}"
    "{% endfor %}){% if not loop.last %}, {% endif %}{% endfor %}]{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

}  // namespace

TEST_CASE("a call that must be made is of its function's own schema", "[llmserve][tools]") {
  const ScratchDirectory directory;
  const std::string jinja = GENERATE("zephyr", kXml, kHarmony, kPython);
  const std::string chat = jinja == "zephyr" ? jinja : directory.write("t.jinja", jinja);
  CAPTURE(jinja);
  Server server = serve_fable({"--chat-template", chat});
  const auto ask = [&](const Json& schema, bool is_strict = false) {
    return arguments_of(server.post("/v1/chat/completions", forced(schema, is_strict)));
  };
  const Json item = with({{"name", {{"enum", {"pen", "cup"}}}}});
  const auto is_item = [](const Json& value) {
    return value.size() == 1 && (value["name"] == "pen" || value["name"] == "cup");
  };
  for (const bool is_strict : {false, true}) {
    for (const auto& [name, place] :
         {std::pair("$defs", "#/$defs/It em"), std::pair("definitions", "#/definitions/It%20em"),
          std::pair("$defs", "#thing"), std::pair("$defs", "https://x.y/z#/$defs/It em")}) {
      CAPTURE(place);
      Json anchored = item;
      if (std::string_view(place) == "#thing") anchored["$anchor"] = "thing";
      Json more = {{name, {{"It em", anchored}}}};
      if (std::string_view(place).starts_with("https")) more["$id"] = "https://x.y/z";
      CHECK(is_item(ask(with({{"x", {{"$ref", place}}}}, more), is_strict)["x"]));
      more["$ref"] = place;
      CHECK(is_item(ask(more, is_strict)));
    }
    // "#" is the function's schema, and "name" its own property.
    const Json pair = ask(
        with({{"name", {{"enum", {"ab", "cd"}}}}, {"nickname", {{"$ref", "#/properties/name"}}}}),
        is_strict);
    CHECK((pair["nickname"] == "ab" || pair["nickname"] == "cd"));
    const Json tree =
        ask(with({{"label", {{"enum", {"a", "b"}}}},
                  {"kids", {{"type", "array"}, {"maxItems", 1}, {"items", {{"$ref", "#"}}}}}}),
            is_strict);
    CHECK((tree["label"] == "a" || tree["label"] == "b"));
    for (const Json& kid : tree["kids"]) CHECK((kid["label"] == "a" || kid["label"] == "b"));
    CHECK(ask({{"type", "object"}, {"properties", Json::object()}}, is_strict) == Json::object());
    CHECK(ask(nullptr, is_strict) == Json::object());
    CHECK(ask(Json::object(), is_strict) == Json::object());
    // In pieces that the small model's context holds with the answer.
    Json several = Json::object();
    for (const Json& properties :
         std::vector<Json>{{{"text", {{"type", "string"}, {"minLength", 2}, {"maxLength", 5}}},
                            {"day", {{"type", "string"}, {"pattern", "^(mon|tue)$"}}}},
                           {{"n", {{"type", "integer"}, {"minimum", 3}, {"maximum", 4}}},
                            {"flag", {{"type", "boolean"}}}},
                           {{"list",
                             {{"type", "array"},
                              {"items", {{"enum", {1, "x"}}}},
                              {"minItems", 1},
                              {"maxItems", 2}}},
                            {"perhaps", {{"anyOf", {{{"enum", {"y"}}}, {{"type", "null"}}}}}}}})
      several.update(ask(with(properties), is_strict));
    CAPTURE(several);
    CHECK(several["text"].is_string());
    CHECK((several["day"] == "mon" || several["day"] == "tue"));
    CHECK((several["n"] == 3 || several["n"] == 4));
    CHECK(several["flag"].is_boolean());
    CHECK((several["list"].size() == 1 || several["list"].size() == 2));
    CHECK((several["perhaps"].is_null() || several["perhaps"] == "y"));
  }
}

TEST_CASE("what is not enforced of a function is left out and said", "[llmserve][tools]") {
  Server server = serve_fable({"--chat-template", "zephyr"});
  const auto text = [](Json more) {
    more["type"] = "string";
    return more;
  };
  const std::array<std::pair<Json, const char*>, 10> cases = {{
      {text({{"contentEncoding", "base64"}, {"maxLength", 4}}), "k/contentEncoding"},
      {text({{"format", "binary"}, {"maxLength", 4}}), "k/format"},
      {text({{"format", "date"}, {"minLength", 1}}), "k/minLength"},
      {text({{"pattern", "^(?=.*\\d).+$"}, {"maxLength", 4}}), "k/pattern"},
      {text({{"minLength", 1}, {"pattern", "^[a-z]{1,3}$"}}), "k/minLength"},
      {text({{"nullable", true}, {"maxLength", 4}}), "k/nullable"},
      {text({{"x-order", 1}, {"maxLength", 4}}), "k/x-order"},
      {{{"type", "number"}, {"multipleOf", 0.01}, {"minimum", 1}, {"maximum", 2}}, "k/multipleOf"},
      {{{"type", "array"}, {"items", {{"enum", {1, 2}}}}, {"uniqueItems", true}, {"maxItems", 3}},
       "k/uniqueItems"},
      {{{"oneOf", {{{"type", "boolean"}}, {{"enum", {true, 1}}}}}}, "k/oneOf"},
  }};
  for (const auto& [schema, dropped] : cases) {
    CAPTURE(schema);
    const Json parameters = with({{"k", schema}}, {{"additionalProperties", false}});
    const Reply reply = server.post("/v1/chat/completions", forced(parameters));
    const Json arguments = arguments_of(reply);
    CHECK(arguments.size() == 1);
    const std::string place = "tools/0/function/parameters/properties/" + std::string(dropped);
    CHECK(reply.header("x-not-enforced") == place);
    const Reply strict = server.post("/v1/chat/completions", forced(parameters, true)).must_be(400);
    CHECK_THAT(strict.json()["error"]["param"].get<std::string>(),
               Contains("tools/0/function/parameters/properties/k"));
  }
  const Json plain = with({{"k", {{"type", "boolean"}}}});
  CHECK(server.post("/v1/chat/completions", forced(plain)).header("x-not-enforced").empty());
}

}  // namespace llm::test
