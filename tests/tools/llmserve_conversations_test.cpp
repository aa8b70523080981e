// What is made of conversations as agents send them: messages, functions, and what is left out;
// and the table that reads the fields of a JSON object and describes them.

#include "tests/support/json.h"
#include "tests/support/test.h"
#include "tools/llmserve/conversations/chat_roles.h"
#include "tools/llmserve/conversations/conversations.h"
#include "tools/llmserve/conversations/json_fields.h"

namespace llm {
namespace {

using Read = Status (*)(const OrderedJson&, const std::string&, RequestedChat&);

RequestedChat chat_of(Read read, const std::string& json) {
  RequestedChat chat;
  test::require_ok(read(test::parse_ordered_json(json), "x", chat));
  return chat;
}
/// The field that is refused.
std::string refusal(Read read, const std::string& json) {
  RequestedChat chat;
  return test::must_fail(read(test::parse_ordered_json(json), "x", chat), ErrorCode::kUsage).field;
}

OrderedJson messages_of(Read read, const std::string& json) { return chat_of(read, json).messages; }

Status read_flat_tools(const OrderedJson& list, const std::string& path, RequestedChat& chat) {
  return read_tools(list, path, /*is_flat=*/true, chat);
}
Status read_nested_tools(const OrderedJson& list, const std::string& path, RequestedChat& chat) {
  return read_tools(list, path, /*is_flat=*/false, chat);
}

std::string names_of(const RequestedChat& chat) {
  std::string names;
  for (const OrderedJson& tool : chat.tools)
    names += tool["function"]["name"].get<std::string>() + " ";
  return names;
}

std::string roles_of(const OrderedJson& messages) {
  std::string roles;
  for (const OrderedJson& message : messages) {
    roles += message["role"].get<std::string>().front();
    roles += "(" + message["content"].get<std::string>() + ")";
  }
  return roles;
}

/// What becomes of messages that are written as role and content, a letter each: "sa ub".
std::string placed(const ChatRoles& roles, const std::string& messages) {
  RequestedChat chat;
  for (std::size_t i = 0; i < messages.size(); i += 3) {
    const char role = messages[i];
    chat.add(role == 's' ? "system" : role == 'u' ? "user" : "assistant", {messages[i + 1]});
  }
  place_messages(roles, chat);
  return roles_of(chat.messages);
}

}  // namespace

TEST_CASE("items that models here have no part in are left out or are text", "[llmserve]") {
  const RequestedChat chat = chat_of(read_response_input, R"([
    {"role": "user", "content": "Go."},
    {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "x"}},
    {"type": "image_generation_call", "id": "i", "result": "AAAA"},
    {"type": "reasoning", "summary": [], "encrypted_content": "zzz"},
    {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "a \"b\""},
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
    {"type": "function_call", "call_id": "c2", "namespace": "mcp__files", "name": "read",
     "arguments": "{\"n\":1}"},
    {"type": "function_call_output", "call_id": "c2",
     "output": [{"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA"}]},
    {"type": "local_shell_call", "call_id": "c3", "action": {"command": ["ls"]}},
    {"type": "local_shell_call_output", "call_id": "c3", "output": {"code": 0}},
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Now."}]}
  ])");
  CHECK(chat.messages == test::parse_ordered_json(R"([
    {"role": "user", "content": "Go."},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function",
     "function": {"name": "patch", "arguments": "{\"input\":\"a \\\"b\\\"\"}"}}]},
    {"role": "tool", "content": "done", "tool_call_id": "c1", "name": "patch"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c2", "type": "function",
     "function": {"name": "mcp__files__read", "arguments": "{\"n\":1}"}}]},
    {"role": "tool", "content": "see\n[image: this model reads text only]", "tool_call_id": "c2",
     "name": "mcp__files__read"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c3", "type": "function",
     "function": {"name": "local_shell", "arguments": "{\"command\":[\"ls\"]}"}}]},
    {"role": "tool", "content": "{\"code\":0}", "tool_call_id": "c3", "name": "local_shell"},
    {"role": "system", "content": "Now."}])"));
  CHECK(chat.notes.header() == "x[1].web_search_call, x[2].image_generation_call");
  CHECK_FALSE(chat.unread);
  CHECK(refusal(read_response_input, R"([{"type": "item_reference", "id": "m"}])") == "x[0].type");
}

TEST_CASE("tools of vendors' servers are left out, others become functions", "[llmserve]") {
  const RequestedChat chat = chat_of(read_flat_tools, R"([
    {"type": "function", "name": "run", "strict": null, "parameters": {"type": "object"}},
    {"type": "web_search", "external_web_access": false},
    {"type": "image_generation", "output_format": "png"}, {"type": "file_search"},
    {"type": "code_interpreter", "container": {"type": "auto"}}, {"type": "mcp", "server_url": "u"},
    {"type": "tool_search"}, {"type": "local_shell"}, {"type": "computer_use_preview"},
    {"type": "namespace", "name": "mcp__files", "description": "n", "tools": [
      {"type": "function", "name": "read", "parameters": {"type": "object"}},
      {"type": "custom", "name": "write"}]},
    {"type": "namespace", "name": "ns__", "tools": [{"type": "function", "name": "f"}]},
    {"type": "custom", "name": "patch", "description": "Patch files",
     "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}}
  ])");
  CHECK(names_of(chat) == "run mcp__files__read mcp__files__write ns__f patch ");
  CHECK(chat.notes.header() ==
        "x[1].web_search, x[2].image_generation, x[3].file_search, x[4].code_interpreter, "
        "x[5].mcp, x[6].tool_search, x[7].local_shell, x[8].computer_use_preview");
  const auto& read = chat.origins.at("mcp__files__read");
  CHECK((read.name == "read" && read.name_space == "mcp__files" && !read.takes_text));
  CHECK(chat.origins.at("mcp__files__write").takes_text);
  CHECK(chat.origins.at("patch").takes_text);
  CHECK_FALSE(chat.origins.contains("run"));
  const OrderedJson& patch = chat.tools[4]["function"];
  CHECK(patch["parameters"]["required"] == OrderedJson::array({"input"}));
  CHECK_THAT(patch["description"].get<std::string>(), Catch::Matchers::Contains("start: \"x\""));

  CHECK(names_of(chat_of(read_nested_tools, R"([
    {"type": "function", "function": {"name": "f"}}, {"type": "function", "name": "flat"},
    {"type": "custom", "custom": {"name": "c", "format": {"type": "text"}}},
    {"type": "browser_search"}])")) == "f flat c ");
  const RequestedChat anthropic = chat_of(read_anthropic_tools, R"([
    {"name": "Read", "input_schema": {"type": "object"}},
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
    {"type": "bash_20250124", "name": "bash"}, {"type": "text_editor_20250728", "name": "e"},
    {"type": "custom", "name": "Write", "input_schema": {"type": "object"}}])");
  CHECK(names_of(anthropic) == "Read Write ");
  CHECK(anthropic.notes.header() ==
        "x[1].web_search_20250305, x[2].bash_20250124, x[3].text_editor_20250728");
  // A slip is none of a vendor's tools.
  CHECK(refusal(read_flat_tools, R"([{"type": "functoin", "name": "f", "parameters": {}}])") ==
        "x[0].type");
}

TEST_CASE("a choice may allow some functions", "[llmserve]") {
  const std::string tools =
      R"([{"type": "function", "name": "f"}, {"type": "function", "name": "g"},
                                {"type": "custom", "name": "h"}])";
  const auto chosen = [&](const char* choice) {
    RequestedChat chat = chat_of(read_flat_tools, tools);
    chat.add("user", "a");
    REQUIRE(read_tool_choice(test::parse_ordered_json(choice), "c", chat).ok());
    REQUIRE(check_chat(chat, "x").ok());
    return names_of(chat) + (chat.choice.kind == ToolChoice::Kind::kRequired ? "required"
                             : chat.choice.kind == ToolChoice::Kind::kNamed  ? chat.choice.name
                                                                             : "auto");
  };
  CHECK(chosen(R"("auto")") == "f g h auto");
  CHECK(chosen(R"({"type": "custom", "name": "h"})") == "f g h h");
  CHECK(chosen(R"({"type": "allowed_tools", "mode": "required",
                   "tools": [{"type": "function", "name": "g"}, {"type": "custom", "name": "h"}]})") ==
        "g h required");
  CHECK(chosen(R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto",
                   "tools": [{"type": "function", "function": {"name": "f"}}]}})") == "f auto");
  RequestedChat chat = chat_of(read_flat_tools, tools);
  CHECK_FALSE(read_tool_choice({{"type", "web_search"}}, "c", chat).ok());
}

TEST_CASE("what is no text is told as text, but for the last message", "[llmserve]") {
  const char* const image = "[image: this model reads text only]";
  const std::string source =
      R"("source": {"type": "base64", "media_type": "image/png", "data": "A"})";
  const OrderedJson history = messages_of(read_anthropic_messages, R"([
    {"role": "user", "content": [{"type": "text", "text": "See:"}, {"type": "image", )" +
                                                                       source +
                                                                       R"(}]},
    {"role": "assistant", "content": [
      {"type": "redacted_thinking", "data": "z"}, {"type": "server_tool_use", "id": "s", "name": "w",
      "input": {}}, {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
      {"type": "text", "text": "ok"},
      {"type": "tool_use", "id": "t", "name": "Read", "input": {"path": "a.png"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
      {"type": "image", )" + source + R"(}, {"type": "tool_reference", "tool_name": "x"}]}]},
    {"role": "system", "content": "Later."},
    {"role": "user", "content": [
      {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain",
       "data": "of paper"}}, {"type": "text", "text": "Go on."}]}])");
  REQUIRE(history.size() == 5);
  CHECK(history[0]["content"] == std::string("See:\n") + image + "\n");
  CHECK(history[1]["content"] == "ok");
  CHECK(history[2]["content"] == image);
  CHECK(history[2]["role"] == "tool");
  CHECK(history[3] == OrderedJson{{"role", "system"}, {"content", "Later."}});
  CHECK(history[4]["content"] == "T\nof paper\nGo on.");

  const std::string picture = R"({"role": "user", "content": [{"type": "image", )" + source + "}]}";
  const std::string url =
      R"({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]})";
  const std::string old = R"({"role": "user", "content": "a", "images": ["A"]})";
  const std::string said = R"(, {"role": "assistant", "content": "no"})";
  const std::string plain = R"({"role": "user", "content": "b"})";
  for (const auto& [reader, messages, field] :
       std::vector<std::tuple<Read, std::string, std::string>>{
           {read_anthropic_messages, picture, "x[0].content[0].type"},
           {read_anthropic_messages, picture + said, ""},
           {read_anthropic_messages, picture + said + "," + plain, ""},
           {read_anthropic_messages, plain + said + "," + picture, "x[2].content[0].type"},
           {read_chat_messages, url, "x[0].content[0].type"},
           {read_chat_messages, url + "," + plain, ""},
           {read_ollama_messages, old, "x[0].images"},
           {read_ollama_messages, old + said + "," + plain, ""}}) {
    CAPTURE(messages);
    RequestedChat chat = chat_of(reader, "[" + messages + "]");
    const Status status = check_chat(chat, "x");
    CHECK((status.ok() ? "" : status.error().field) == field);
  }
}

TEST_CASE("system messages stand where the template takes them", "[llmserve]") {
  const ChatRoles all;
  const ChatRoles first = {.system_later = false};
  const ChatRoles none = {.system_first = false, .system_later = false};
  const ChatRoles strict = {.system_first = false, .system_later = false, .repeats = false};
  CHECK(placed(all, "sa sb uc sd") == "s(a\n\nb)u(c)s(d)");
  CHECK(placed(first, "sa ub ac sd ue") == "s(a)u(b)a(c)u(d\n\ne)");
  CHECK(placed(first, "sa ub sc") == "s(a)u(b\n\nc)");
  CHECK(placed(first, "ua ab sc sd") == "u(a)a(b)u(c\n\nd)");
  CHECK(placed(first, "ua sb ac sd ae uf") == "u(a\n\nb)a(c)u(d)a(e)u(f)");
  CHECK(placed(none, "sa sb uc") == "u(a\n\nb\n\nc)");
  CHECK(placed(none, "sa") == "u(a)");
  CHECK(placed(strict, "ua ub ac ad ue") == "u(a\n\nb)a(c\n\nd)u(e)");
}

TEST_CASE("calls of Ollama's clients that are no list are refused", "[llmserve]") {
  for (const std::string calls : {"3", "\"a\"", "true", "{}", "{\"a\": 1}", "[1]", "[{}]"})
    CHECK(refusal(read_ollama_messages, R"([{"role": "assistant", "tool_calls": )" + calls + "}]")
              .starts_with("x[0].tool_calls"));
}

TEST_CASE("conversations of every API are read as one", "[llmserve][tools]") {
  RequestedChat blocks = chat_of(read_anthropic_messages, R"([{"role": "user", "content": [
    {"type": "text", "text": "First."},
    {"type": "tool_result", "tool_use_id": "c", "content": "last"}]}])");
  CHECK(roles_of(blocks.messages) == "u(First.)t(last)");
  REQUIRE(blocks.parallel_calls);
  const auto choice = R"({"type": "any", "disable_parallel_tool_use": true})";
  test::require_ok(read_anthropic_choice(test::parse_ordered_json(choice), "tool_choice", blocks));
  CHECK_FALSE(blocks.parallel_calls);

  const RequestedChat lines = chat_of(read_ollama_messages, R"([
    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}},
                                         {"function": {"name": "g", "arguments": {}}}]},
    {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}])");
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
  CHECK(spelled.messages[1]["role"] == "user");
  CHECK(spelled.messages[1]["content"] ==
        "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>");
  // By a template that would leave calls out, with its own marks and role of results.
  format.call = ReplyFormat::Call::kKeywords;
  format.begin = "<|tool_call_start|>[";
  format.between = ", ";
  format.end = "]<|tool_call_end|>";
  RequestedChat kept = lines;
  adapt_chat(format, ChatRoles(), kept);
  CHECK(kept.messages[0]["content"] == "<|tool_call_start|>[f(), g()]<|tool_call_end|>");
  CHECK_FALSE(kept.messages[0].contains("tool_calls"));
  CHECK(kept.messages[2]["role"] == "tool");
}

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
      "ignored": {"description": "Accepted without effect."}
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
