// What is made of conversations as agents send them: messages, functions, and what is left out.

#include "tests/support/json.h"
#include "tests/support/test.h"
#include "tools/llmserve/conversations/chat_roles.h"
#include "tools/llmserve/conversations/conversations.h"

namespace llm {
namespace {

using Read = Status (*)(const OrderedJson&, const std::string&, RequestedChat&);

RequestedChat chat_of(Read read, const std::string& json) {
  RequestedChat chat;
  const Status status = read(test::parse_ordered_json(json), "x", chat);
  INFO((status.ok() ? "" : status.error().to_string()));
  REQUIRE(status.ok());
  return chat;
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

RequestedChat chat_of(std::initializer_list<std::pair<const char*, const char*>> messages) {
  RequestedChat chat;
  for (const auto& [role, content] : messages) chat.add(role, content);
  return chat;
}

std::string placed(const ChatRoles& roles,
                   std::initializer_list<std::pair<const char*, const char*>> messages) {
  RequestedChat chat = chat_of(messages);
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
  const auto call = [](const char* id, const char* name, const char* arguments) {
    return OrderedJson{
        {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
  };
  const auto reply = [&](OrderedJson one) {
    return OrderedJson{{"role", "assistant"}, {"content", ""}, {"tool_calls", {std::move(one)}}};
  };
  const auto result = [](const char* id, const char* name, const char* content) {
    return OrderedJson{
        {"role", "tool"}, {"content", content}, {"tool_call_id", id}, {"name", name}};
  };
  const OrderedJson expected = OrderedJson::array(
      {{{"role", "user"}, {"content", "Go."}},
       reply(call("c1", "patch", R"({"input":"a \"b\""})")),
       result("c1", "patch", "done"),
       reply(call("c2", "mcp__files__read", R"({"n":1})")),
       result("c2", "mcp__files__read", "see\n[image: this model reads text only]"),
       reply(call("c3", "local_shell", R"({"command":["ls"]})")),
       result("c3", "local_shell", R"({"code":0})"),
       {{"role", "system"}, {"content", "Now."}}});
  CHECK(chat.messages == expected);
  CHECK(chat.notes.header() == "x[1].web_search_call, x[2].image_generation_call");
  CHECK_FALSE(chat.unread);
  RequestedChat other;
  CHECK_FALSE(
      read_response_input(test::parse_ordered_json(R"([{"type": "item_reference", "id": "m"}])"),
                          "x", other)
          .ok());
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
  CHECK(chat.origins.at("mcp__files__read").name == "read");
  CHECK(chat.origins.at("mcp__files__read").name_space == "mcp__files");
  CHECK_FALSE(chat.origins.at("mcp__files__read").takes_text);
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
  RequestedChat slip;
  CHECK_FALSE(read_flat_tools(test::parse_ordered_json(
                                  R"([{"type": "functoin", "name": "f", "parameters": {}}])"),
                              "x", slip)
                  .ok());
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
  const auto unread = [](Read read, const std::string& json) {
    RequestedChat chat = chat_of(read, json);
    const Status status = check_chat(chat, "x");
    return status.ok() ? "" : status.error().field;
  };
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
  const std::string said = R"({"role": "assistant", "content": "no"})";
  const std::string plain = R"({"role": "user", "content": "b"})";
  CHECK(unread(read_anthropic_messages, "[" + picture + "]") == "x[0].content[0].type");
  CHECK(unread(read_anthropic_messages, "[" + picture + "," + said + "]").empty());
  CHECK(unread(read_anthropic_messages, "[" + picture + "," + said + "," + plain + "]").empty());
  CHECK(unread(read_anthropic_messages, "[" + plain + "," + said + "," + picture + "]") ==
        "x[2].content[0].type");
  const std::string url = R"([{"type": "image_url", "image_url": {"url": "data:"}}])";
  CHECK(unread(read_chat_messages, R"([{"role": "user", "content": )" + url + "}]") ==
        "x[0].content[0].type");
  CHECK(unread(read_chat_messages, R"([{"role": "user", "content": )" + url + "}," + plain + "]")
            .empty());
  CHECK(unread(read_ollama_messages, R"([{"role": "user", "content": "a", "images": ["A"]}])") ==
        "x[0].images");
  CHECK(unread(read_ollama_messages,
               R"([{"role": "user", "content": "a", "images": ["A"]},)" + said + "," + plain + "]")
            .empty());
}

TEST_CASE("system messages stand where the template takes them", "[llmserve]") {
  const ChatRoles all;
  CHECK(placed(all, {{"system", "a"}, {"system", "b"}, {"user", "c"}, {"system", "d"}}) ==
        "s(a\n\nb)u(c)s(d)");
  const ChatRoles first = {.system_later = false};
  CHECK(placed(
            first,
            {{"system", "a"}, {"user", "b"}, {"assistant", "c"}, {"system", "d"}, {"user", "e"}}) ==
        "s(a)u(b)a(c)u(d\n\ne)");
  CHECK(placed(first, {{"system", "a"}, {"user", "b"}, {"system", "c"}}) == "s(a)u(b\n\nc)");
  CHECK(placed(first, {{"user", "a"}, {"assistant", "b"}, {"system", "c"}, {"system", "d"}}) ==
        "u(a)a(b)u(c\n\nd)");
  CHECK(placed(first, {{"user", "a"},
                       {"system", "b"},
                       {"assistant", "c"},
                       {"system", "d"},
                       {"assistant", "e"},
                       {"user", "f"}}) == "u(a\n\nb)a(c)u(d)a(e)u(f)");
  const ChatRoles none = {.system_first = false, .system_later = false};
  CHECK(placed(none, {{"system", "a"}, {"system", "b"}, {"user", "c"}}) == "u(a\n\nb\n\nc)");
  CHECK(placed(none, {{"system", "a"}}) == "u(a)");
  const ChatRoles strict = {.system_first = false, .system_later = false, .repeats = false};
  CHECK(
      placed(
          strict,
          {{"user", "a"}, {"user", "b"}, {"assistant", "c"}, {"assistant", "d"}, {"user", "e"}}) ==
      "u(a\n\nb)a(c\n\nd)u(e)");
}

TEST_CASE("calls of Ollama's clients that are no list are refused", "[llmserve]") {
  for (const char* const calls : {"3", "\"a\"", "true", "{}", "{\"a\": 1}", "[1]", "[{}]"}) {
    CAPTURE(calls);
    RequestedChat chat;
    const Status status =
        read_ollama_messages(test::parse_ordered_json(fmt::format(
                                 R"([{{"role": "assistant", "tool_calls": {}}}])", calls)),
                             "messages", chat);
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().field.starts_with("messages[0].tool_calls"));
  }
}

}  // namespace llm
