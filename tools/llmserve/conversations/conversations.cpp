#include "tools/llmserve/conversations/conversations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tools/llmserve/conversations/chat_roles.h"
#include "tools/llmserve/conversations/conversation_parts.h"

namespace llm {
namespace {

Result<OrderedJson> read_call(const OrderedJson& call, const std::string& path) {
  std::string type = "function";
  if (!call.is_object() || call.contains("type")) {
    LLM_TRY(type, type_of(call, path));
  }
  if (type == "custom") {
    const OrderedJson custom = call.value("custom", OrderedJson::object());
    LLM_TRY(std::string id, text_at(call, "id", path));
    LLM_TRY(std::string name, text_at(custom, "name", path + ".custom"));
    LLM_TRY(std::string input, text_at(custom, "input", path + ".custom"));
    return call_json(std::move(id), std::move(name), text_arguments(std::move(input)));
  }
  const auto function = call.find("function");
  if (type != "function" || function == call.end() || !function->is_object())
    return wrong_field(path, shown_json(call), "a call of type function");
  LLM_TRY(std::string id, text_at(call, "id", path));
  LLM_TRY(std::string name, text_at(*function, "name", path + ".function"));
  LLM_TRY(std::string arguments, arguments_at(*function, path + ".function"));
  return call_json(std::move(id), std::move(name), std::move(arguments));
}

Status read_chat_message(const OrderedJson& given, const std::string& path, RequestedChat& chat) {
  LLM_TRY(const std::string role, text_at(given, "role", path));
  const OrderedJson nothing;
  const auto member = [&](const char* name) -> const OrderedJson& {
    const auto at = given.find(name);
    return at == given.end() ? nothing : *at;
  };
  for (const auto& [name, value] : given.items()) {
    static constexpr std::array kRead = {
        "role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning"};
    const bool says_nothing = value.is_null() || (value.is_structured() && value.empty());
    if (says_nothing || std::ranges::find(kRead, name) != kRead.end()) continue;
    if (name == "function_call")
      return wrong_field(path + ".function_call", shown_json(value), "tool_calls in place of it");
    chat.notes.ignore(path + "." + name);
  }
  const OrderedJson& content = member("content");
  const OrderedJson& calls = member("tool_calls");
  const bool has_calls = calls.is_array() && !calls.empty();
  if (content.is_null() && !has_calls && role != "assistant")
    return wrong_field(path + ".content", "nothing", "a string or an array of parts");
  if (role == "user" || role == "assistant") chat.unread.reset();
  LLM_TRY(std::string text, text_of(content, path + ".content", {role, chat}));
  if (role == "tool") {
    LLM_TRY(const std::string id, text_at(given, "tool_call_id", path));
    add_result(chat, id, std::move(text));
    return Ok{};
  }
  const bool is_system = role == "system" || role == "developer";
  if (!is_system && role != "user" && role != "assistant")
    return wrong_field(path + ".role", shown_json(role),
                       "system, developer, user, assistant or tool");
  if (!calls.is_null() && (role != "assistant" || !calls.is_array()))
    return wrong_field(path + ".tool_calls", shown_json(calls),
                       "an array, of an assistant's message");
  chat.add(is_system ? "system" : role, std::move(text));
  for (const char* const name : {"reasoning", "reasoning_content"})
    if (member(name).is_string()) chat.messages.back()["reasoning_content"] = member(name);
  for (std::size_t i = 0; has_calls && i < calls.size(); ++i) {
    LLM_TRY(OrderedJson call, read_call(calls[i], at_index(path + ".tool_calls", i)));
    add_call(chat, std::move(call));
  }
  return Ok{};
}

/// Tells a model of functions whose template does not: behind the system messages that lead, with
/// which it becomes one.
void tell_tools(const ReplyFormat& format, RequestedChat& chat) {
  if (chat.tools.is_null()) return;
  std::string text = "You can call these functions, each described by a line of JSON:\n<tools>\n";
  for (const OrderedJson& tool : chat.tools) text += json_text(tool) + "\n";
  text += "</tools>\n\nTo call one, answer with its name and arguments ";
  if (format.writes_calls)
    text += "like this:\n" + call_example(format);
  else
    text +=
        "as JSON between these tags:\n<tool_call>\n{\"name\": \"...\", \"arguments\": "
        "{...}}\n</tool_call>\nThe result is given back between <tool_response> and "
        "</tool_response>.";
  const auto first = std::ranges::find_if(
      chat.messages, [](const OrderedJson& message) { return message["role"] != "system"; });
  chat.messages.insert(first, OrderedJson{{"role", "system"}, {"content", std::move(text)}});
  chat.tools = nullptr;
}

/// Calls as text of the replies that have them, for templates that leave calls out.
void spell_calls(const ReplyFormat& format, RequestedChat& chat) {
  for (OrderedJson& message : chat.messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || calls->empty()) continue;
    auto& content = message["content"].get_ref<std::string&>();
    content += (content.empty() ? "" : "\n") + text_of_calls(format, *calls);
    message.erase(calls);
  }
}

/// Messages of the roles system, user and assistant alone.
void spell_results(RequestedChat& chat) {
  OrderedJson plain = OrderedJson::array();
  bool after_result = false;
  for (OrderedJson& message : chat.messages) {
    const bool is_result = message["role"] == "tool";
    auto content = message["content"].get<std::string>();
    if (is_result) content = fmt::format("<tool_response>\n{}\n</tool_response>", content);
    if (is_result && after_result) {
      plain.back()["content"].get_ref<std::string&>() += "\n" + content;
    } else {
      plain.push_back({{"role", is_result ? "user" : message["role"].get<std::string>()},
                       {"content", content}});
    }
    after_result = is_result;
  }
  chat.messages = std::move(plain);
}

}  // namespace

void RequestedChat::add(std::string_view role, std::string content) {
  messages.push_back({{"role", role}, {"content", std::move(content)}});
}

void RequestedChat::add_system(std::string content) {
  if (content.empty()) return;
  OrderedJson message = {{"role", "system"}, {"content", std::move(content)}};
  messages.insert(messages.begin(), std::move(message));
}

Status read_chat_messages(const OrderedJson& list, const std::string& path, RequestedChat& chat) {
  return read_each(list, path, "messages", [&](const OrderedJson& given, const std::string& place) {
    return read_chat_message(given, place, chat);
  });
}

JsonSchema chat_message_schema() {
  const JsonSchema text = {{"type", "string"}};
  const JsonSchema part = {{"type", "object"},
                           {"required", {"type", "text"}},
                           {"properties", {{"type", {{"const", "text"}}}, {"text", text}}}};
  const JsonSchema function = {{"type", "object"},
                               {"required", {"name", "arguments"}},
                               {"properties", {{"name", text}, {"arguments", text}}}};
  const JsonSchema call = {
      {"type", "object"},
      {"required", {"id", "type", "function"}},
      {"properties", {{"id", text}, {"type", {{"const", "function"}}}, {"function", function}}}};
  return {{"type", "object"},
          {"required", {"role"}},
          {"properties",
           {{"role", {{"enum", {"system", "developer", "user", "assistant", "tool"}}}},
            {"content", {{"oneOf", JsonSchema::array({text, array_of(part), {{"type", "null"}}})}}},
            {"tool_calls", array_of(call)},
            {"tool_call_id", text},
            {"reasoning_content", text},
            {"name", text}}}};
}

Status check_chat(RequestedChat& chat, const std::string& path) {
  using Kind = ToolChoice::Kind;
  if (chat.messages.empty()) return wrong_field(path, "[]", "an array of messages");
  if (chat.unread) return *chat.unread;
  if (chat.choice.allowed && chat.tools.is_array()) {
    OrderedJson kept = OrderedJson::array();
    for (OrderedJson& tool : chat.tools)
      if (chat.choice.allowed->contains(tool["function"]["name"].get_ref<const std::string&>()))
        kept.push_back(std::move(tool));
    chat.tools = std::move(kept);
  }
  const bool has_tools = chat.tools.is_array() && !chat.tools.empty();
  if (!has_tools) chat.tools = nullptr;
  if (!has_tools && (chat.choice.kind == Kind::kRequired || chat.choice.kind == Kind::kNamed))
    return wrong_field("tool_choice", "it without tools", "tools as well");
  if (chat.choice.kind == Kind::kNone) chat.tools = nullptr;
  if (chat.choice.kind != Kind::kNamed) return Ok{};
  const bool is_known = std::ranges::any_of(chat.tools, [&](const OrderedJson& tool) {
    return tool["function"]["name"] == chat.choice.name;
  });
  if (is_known) return Ok{};
  return wrong_field("tool_choice", shown_json(chat.choice.name), "a function of tools");
}

void adapt_chat(const ReplyFormat& format, const ChatRoles& roles, RequestedChat& chat) {
  if (!format.writes_calls && format.call != ReplyFormat::Call::kNone) spell_calls(format, chat);
  if (!format.knows_tools && !format.writes_calls) spell_results(chat);
  if (!format.knows_tools) tell_tools(format, chat);
  place_messages(roles, chat);
  if (!format.knows_tools && !format.writes_calls) return;
  for (OrderedJson& message : chat.messages) {
    if (!message.contains("tool_calls")) continue;
    if (format.null_content && message["content"] == "") message["content"] = nullptr;
    if (format.text_arguments) continue;
    for (OrderedJson& call : message["tool_calls"]) {
      OrderedJson& arguments = call["function"]["arguments"];
      arguments = parse_ordered_json(arguments.get<std::string>());
    }
  }
}

}  // namespace llm
