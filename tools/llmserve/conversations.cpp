#include "tools/llmserve/conversations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

namespace llm {
namespace {

std::string at_index(const std::string& path, std::size_t index) {
  return fmt::format("{}[{}]", path, index);
}

/// A member that must be a text.
Result<std::string> text_at(const OrderedJson& object, const char* name, const std::string& path) {
  const auto at = object.find(name);
  if (at != object.end() && at->is_string()) return at->get<std::string>();
  return wrong_field(path + "." + name, at == object.end() ? "nothing" : shown_json(*at),
                     "a string");
}

Result<std::string> type_of(const OrderedJson& object, const std::string& path) {
  if (!object.is_object()) return wrong_field(path, shown_json(object), "an object");
  return text_at(object, "type", path);
}

/// A string, null, or parts of these types, whose texts are joined.
Result<std::string> text_of(const OrderedJson& content, const std::string& path,
                            std::initializer_list<std::string_view> types) {
  if (content.is_null()) return std::string();
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    return wrong_field(path, shown_json(content), "a string or an array of parts");
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string place = at_index(path, i);
    LLM_TRY(const std::string type, type_of(content[i], place));
    if (std::ranges::find(types, type) == types.end())
      return wrong_field(place + ".type", shown_json(type),
                         fmt::format("{}", fmt::join(types, " or ")));
    LLM_TRY(const std::string piece, text_at(content[i], "text", place));
    text += piece;
  }
  return text;
}

OrderedJson call_json(std::string id, std::string name, std::string arguments) {
  return {{"id", std::move(id)},
          {"type", "function"},
          {"function", {{"name", std::move(name)}, {"arguments", std::move(arguments)}}}};
}

/// Arguments as text, which must be an object's JSON; none is an empty object.
Result<std::string> arguments_at(const OrderedJson& object, const std::string& path) {
  LLM_TRY(std::string text, text_at(object, "arguments", path));
  if (text.empty()) return std::string("{}");
  if (parse_ordered_json(text).is_object()) return text;
  return wrong_field(path + ".arguments", shown_json(text), "the JSON of an object");
}

Result<OrderedJson> read_call(const OrderedJson& call, const std::string& path) {
  LLM_TRY(const std::string type, type_of(call, path));
  const auto function = call.find("function");
  if (type != "function" || function == call.end() || !function->is_object())
    return wrong_field(path, shown_json(call), "a call of type function");
  LLM_TRY(std::string id, text_at(call, "id", path));
  LLM_TRY(std::string name, text_at(*function, "name", path + ".function"));
  LLM_TRY(std::string arguments, arguments_at(*function, path + ".function"));
  return call_json(std::move(id), std::move(name), std::move(arguments));
}

/// The last message where it is the assistant's, else a new one of theirs.
OrderedJson& last_reply(RequestedChat& chat) {
  if (chat.messages.empty() || chat.messages.back()["role"] != "assistant")
    chat.add("assistant", "");
  return chat.messages.back();
}

void add_call(RequestedChat& chat, OrderedJson call) {
  last_reply(chat)["tool_calls"].push_back(std::move(call));
}

void add_result(RequestedChat& chat, const std::string& id, std::string content) {
  chat.add("tool", std::move(content));
  OrderedJson& message = chat.messages.back();
  message["tool_call_id"] = id;
  for (const OrderedJson& earlier : chat.messages)
    for (const OrderedJson& call : earlier.value("tool_calls", OrderedJson::array()))
      if (call["id"] == id) message["name"] = call["function"]["name"];
}

Status read_chat_message(const OrderedJson& given, const std::string& path, RequestedChat& chat) {
  if (!given.is_object()) return wrong_field(path, shown_json(given), "an object");
  LLM_TRY(const std::string role, text_at(given, "role", path));
  const OrderedJson nothing;
  const auto member = [&](const char* name) -> const OrderedJson& {
    const auto at = given.find(name);
    return at == given.end() ? nothing : *at;
  };
  for (const auto& [name, value] : given.items()) {
    static constexpr std::array kRead = {"role",       "content",      "name",
                                         "tool_calls", "tool_call_id", "reasoning_content"};
    static constexpr std::array kOfReplies = {"refusal", "annotations", "audio", "function_call"};
    if (value.is_null() || std::ranges::find(kRead, name) != kRead.end()) continue;
    const bool is_known = std::ranges::find(kOfReplies, name) != kOfReplies.end();
    if (is_known && value.is_array() && value.empty()) continue;
    return wrong_field(path + "." + name, shown_json(value),
                       is_known ? "nothing there" : "a field of OpenAI's messages");
  }
  const OrderedJson& content = member("content");
  const OrderedJson& calls = member("tool_calls");
  const bool has_calls = calls.is_array() && !calls.empty();
  if (content.is_null() && !has_calls)
    return wrong_field(path + ".content", "nothing", "a string or an array of parts");
  LLM_TRY(std::string text, text_of(content, path + ".content", {"text"}));
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
  OrderedJson& message = chat.messages.back();
  if (const OrderedJson& thoughts = member("reasoning_content"); thoughts.is_string())
    message["reasoning_content"] = thoughts;
  for (std::size_t i = 0; has_calls && i < calls.size(); ++i) {
    LLM_TRY(OrderedJson call, read_call(calls[i], at_index(path + ".tool_calls", i)));
    message["tool_calls"].push_back(std::move(call));
  }
  return Ok{};
}

Status add_tool(const OrderedJson& function, const char* schema_name, const std::string& path,
                RequestedChat& chat) {
  LLM_TRY(const std::string name, text_at(function, "name", path));
  const bool is_name = !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
  if (!is_name)
    return wrong_field(path + ".name", shown_json(name),
                       "1 to 64 letters, digits, '_', '-' and '.'");
  OrderedJson tool = {{"name", name}};
  if (function.contains("description") && !function["description"].is_null()) {
    LLM_TRY(tool["description"], text_at(function, "description", path));
  }
  OrderedJson schema = {{"type", "object"}, {"properties", OrderedJson::object()}};
  if (function.contains(schema_name) && !function[schema_name].is_null())
    schema = function[schema_name];
  if (!schema.is_object())
    return wrong_field(path + "." + schema_name, shown_json(schema), "a JSON schema of an object");
  tool["parameters"] = std::move(schema);
  const OrderedJson strict = function.value("strict", OrderedJson());
  if (!strict.is_null() && !strict.is_boolean())
    return wrong_field(path + ".strict", shown_json(strict), "true or false");
  if (strict == true) tool["strict"] = true;
  if (!chat.tools.is_array()) chat.tools = OrderedJson::array();
  for (const OrderedJson& known : chat.tools)
    if (known["function"]["name"] == name)
      return wrong_field(path + ".name", shown_json(name), "a name that no other function has");
  chat.tools.push_back({{"type", "function"}, {"function", std::move(tool)}});
  return Ok{};
}

Status check_list(const OrderedJson& list, const std::string& path, std::string_view what) {
  if (list.is_array()) return Ok{};
  return wrong_field(path, shown_json(list), fmt::format("an array of {}", what));
}

/// An item of /v1/responses' input.
Status read_item(const OrderedJson& item, const std::string& path, RequestedChat& chat) {
  if (!item.is_object()) return wrong_field(path, shown_json(item), "an object");
  const std::string type =
      item.contains("type") ? item.value("type", OrderedJson("")).dump() : "\"message\"";
  if (type == "\"reasoning\"") return Ok{};  // of OpenAI's models; no other reads it
  if (type == "\"function_call\"") {
    LLM_TRY(std::string id, text_at(item, "call_id", path));
    LLM_TRY(std::string name, text_at(item, "name", path));
    LLM_TRY(std::string arguments, arguments_at(item, path));
    add_call(chat, call_json(std::move(id), std::move(name), std::move(arguments)));
    return Ok{};
  }
  if (type == "\"function_call_output\"") {
    LLM_TRY(const std::string id, text_at(item, "call_id", path));
    LLM_TRY(std::string output, text_of(item.value("output", OrderedJson("")), path + ".output",
                                        {"input_text", "output_text"}));
    add_result(chat, id, std::move(output));
    return Ok{};
  }
  if (type != "\"message\"")
    return wrong_field(path + ".type", type, "message, function_call or function_call_output");
  LLM_TRY(const std::string role, text_at(item, "role", path));
  LLM_TRY(std::string text, text_of(item.value("content", OrderedJson()), path + ".content",
                                    {"input_text", "output_text", "text"}));
  const bool is_system = role == "system" || role == "developer";
  if (!is_system && role != "user" && role != "assistant")
    return wrong_field(path + ".role", shown_json(role), "system, developer, user or assistant");
  chat.add(is_system ? "system" : role, std::move(text));
  return Ok{};
}

/// A block of a message of /v1/messages. @param text  of the message so far
Status read_block(const OrderedJson& block, const std::string& role, const std::string& path,
                  std::string& text, RequestedChat& chat) {
  LLM_TRY(const std::string type, type_of(block, path));
  const auto flush = [&] {
    if (!text.empty()) chat.add(role, std::exchange(text, ""));
  };
  if (type == "text") {
    LLM_TRY(const std::string piece, text_at(block, "text", path));
    text += piece;
    return Ok{};
  }
  if ((type == "thinking" || type == "redacted_thinking") && role == "assistant") return Ok{};
  if (type == "tool_use" && role == "assistant") {
    LLM_TRY(std::string id, text_at(block, "id", path));
    LLM_TRY(std::string name, text_at(block, "name", path));
    const OrderedJson input = block.value("input", OrderedJson());
    if (!input.is_object()) return wrong_field(path + ".input", shown_json(input), "an object");
    flush();
    add_call(chat, call_json(std::move(id), std::move(name), json_text(input)));
    return Ok{};
  }
  if (type == "tool_result" && role == "user") {
    LLM_TRY(const std::string id, text_at(block, "tool_use_id", path));
    LLM_TRY(std::string result,
            text_of(block.value("content", OrderedJson()), path + ".content", {"text"}));
    flush();
    add_result(chat, id, std::move(result));
    return Ok{};
  }
  return wrong_field(path + ".type", shown_json(type),
                     role == "user" ? "text or tool_result" : "text, thinking or tool_use");
}

/// What a model is told whose template knows no functions.
std::string tools_text(const OrderedJson& tools) {
  std::string text = "You can call these functions, each described by a line of JSON:\n<tools>\n";
  for (const OrderedJson& tool : tools) text += json_text(tool) + "\n";
  return text +
         "</tools>\n\nTo call one, answer with its name and arguments as JSON between these tags:\n"
         "<tool_call>\n{\"name\": \"...\", \"arguments\": {...}}\n</tool_call>\n"
         "The result is given back between <tool_response> and </tool_response>.";
}

/// Messages of the roles system, user and assistant alone.
void spell_out(RequestedChat& chat) {
  OrderedJson plain = OrderedJson::array();
  bool after_result = false;
  for (OrderedJson& message : chat.messages) {
    const bool is_result = message["role"] == "tool";
    auto content = message["content"].get<std::string>();
    for (const OrderedJson& call : message.value("tool_calls", OrderedJson::array())) {
      const OrderedJson& function = call["function"];
      const OrderedJson spelled = {
          {"name", function["name"]},
          {"arguments", parse_ordered_json(function["arguments"].get<std::string>())}};
      content += (content.empty() ? "" : "\n") +
                 fmt::format("<tool_call>\n{}\n</tool_call>", json_text(spelled));
    }
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
  if (chat.tools.is_null()) return;
  OrderedJson& first = chat.messages.front();
  std::string text = tools_text(chat.tools);
  if (first["role"] == "system")
    first["content"].get_ref<std::string&>() += "\n\n" + text;
  else
    chat.add_system(std::move(text));
  chat.tools = nullptr;
}

}  // namespace

void RequestedChat::add(std::string_view role, std::string content) {
  messages.push_back({{"role", role}, {"content", std::move(content)}});
}

void RequestedChat::add_system(std::string content) {
  OrderedJson message = {{"role", "system"}, {"content", std::move(content)}};
  messages.insert(messages.begin(), std::move(message));
}

Status read_chat_messages(const OrderedJson& list, const std::string& path, RequestedChat& chat) {
  LLM_RETURN_IF_ERROR(check_list(list, path, "messages"));
  for (std::size_t i = 0; i < list.size(); ++i)
    LLM_RETURN_IF_ERROR(read_chat_message(list[i], at_index(path, i), chat));
  return Ok{};
}

Status read_tools(const OrderedJson& list, const std::string& path, bool is_flat,
                  RequestedChat& chat) {
  LLM_RETURN_IF_ERROR(check_list(list, path, "functions"));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = at_index(path, i);
    LLM_TRY(const std::string type, type_of(list[i], place));
    if (type != "function") return wrong_field(place + ".type", shown_json(type), "function");
    if (is_flat) {
      LLM_RETURN_IF_ERROR(add_tool(list[i], "parameters", place, chat));
      continue;
    }
    const OrderedJson function = list[i].value("function", OrderedJson());
    if (!function.is_object())
      return wrong_field(place + ".function", shown_json(function), "an object");
    LLM_RETURN_IF_ERROR(add_tool(function, "parameters", place + ".function", chat));
  }
  return Ok{};
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

JsonSchema tools_schema(bool is_flat) {
  JsonSchema function = {{"type", "object"},
                         {"required", {"name"}},
                         {"properties",
                          {{"name", {{"type", "string"}, {"pattern", "^[a-zA-Z0-9_.-]{1,64}$"}}},
                           {"description", {{"type", {"string", "null"}}}},
                           {"parameters", {{"type", {"object", "null"}}}},
                           {"strict", {{"type", {"boolean", "null"}}}}}}};
  const JsonSchema type = {{"const", "function"}};
  if (!is_flat) {
    function = {{"type", "object"},
                {"required", {"type", "function"}},
                {"properties", {{"type", type}, {"function", function}}}};
  } else {
    function["properties"]["type"] = type;
    function["required"].push_back("type");
  }
  return array_of(std::move(function));
}

Status read_tool_choice(const OrderedJson& choice, const std::string& path, RequestedChat& chat) {
  using Kind = ToolChoice::Kind;
  if (choice.is_object()) {
    const OrderedJson function = choice.value("function", OrderedJson(choice));
    if (choice.value("type", OrderedJson()) != "function" || !function.is_object())
      return wrong_field(path, shown_json(choice), "the name of a function");
    LLM_TRY(chat.choice.name, text_at(function, "name", path));
    chat.choice.kind = Kind::kNamed;
    return Ok{};
  }
  for (const auto& [word, kind] : {std::pair("auto", Kind::kAuto), std::pair("none", Kind::kNone),
                                   std::pair("required", Kind::kRequired)}) {
    if (choice != word) continue;
    chat.choice.kind = kind;
    return Ok{};
  }
  return wrong_field(path, shown_json(choice), "auto, none, required or a function");
}

Status read_response_input(const OrderedJson& input, const std::string& path, RequestedChat& chat) {
  if (input.is_string()) {
    chat.add("user", input.get<std::string>());
    return Ok{};
  }
  LLM_RETURN_IF_ERROR(check_list(input, path, "items, or a string"));
  for (std::size_t i = 0; i < input.size(); ++i)
    LLM_RETURN_IF_ERROR(read_item(input[i], at_index(path, i), chat));
  return Ok{};
}

Status read_ollama_messages(const OrderedJson& list, const std::string& path, RequestedChat& chat) {
  LLM_RETURN_IF_ERROR(check_list(list, path, "messages"));
  std::size_t n_calls = 0;
  std::size_t n_results = 0;
  const auto id_of = [](std::size_t n) { return fmt::format("call{:05}", n); };
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = at_index(path, i);
    const OrderedJson& given = list[i];
    if (!given.is_object()) return wrong_field(place, shown_json(given), "an object");
    LLM_TRY(const std::string role, text_at(given, "role", place));
    LLM_TRY(std::string text,
            text_of(given.value("content", OrderedJson()), place + ".content", {}));
    if (const OrderedJson images = given.value("images", OrderedJson()); !images.empty())
      return wrong_field(place + ".images", shown_json(images), "none");
    if (role == "tool") {
      // Results come in the order of the calls.
      add_result(chat, id_of(n_results++), std::move(text));
      continue;
    }
    if (role != "system" && role != "user" && role != "assistant")
      return wrong_field(place + ".role", shown_json(role), "system, user, assistant or tool");
    chat.add(role, std::move(text));
    const OrderedJson calls = given.value("tool_calls", OrderedJson());
    for (std::size_t c = 0; c < calls.size(); ++c) {
      const std::string at = at_index(place + ".tool_calls", c) + ".function";
      const OrderedJson function =
          calls[c].is_object() ? calls[c].value("function", OrderedJson()) : OrderedJson();
      if (!function.is_object()) return wrong_field(at, shown_json(function), "an object");
      LLM_TRY(std::string name, text_at(function, "name", at));
      const OrderedJson arguments = function.value("arguments", OrderedJson::object());
      if (!arguments.is_object())
        return wrong_field(at + ".arguments", shown_json(arguments), "an object");
      add_call(chat, call_json(id_of(n_calls++), std::move(name), json_text(arguments)));
    }
  }
  return Ok{};
}

Status read_anthropic_messages(const OrderedJson& list, const std::string& path,
                               RequestedChat& chat) {
  LLM_RETURN_IF_ERROR(check_list(list, path, "messages"));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = at_index(path, i);
    if (!list[i].is_object()) return wrong_field(place, shown_json(list[i]), "an object");
    LLM_TRY(const std::string role, text_at(list[i], "role", place));
    if (role != "user" && role != "assistant")
      return wrong_field(place + ".role", shown_json(role), "user or assistant");
    const OrderedJson content = list[i].value("content", OrderedJson());
    if (content.is_string()) {
      chat.add(role, content.get<std::string>());
      continue;
    }
    LLM_RETURN_IF_ERROR(check_list(content, place + ".content", "blocks, or a string"));
    std::string text;
    const std::size_t n_before = chat.messages.size();
    for (std::size_t b = 0; b < content.size(); ++b)
      LLM_RETURN_IF_ERROR(
          read_block(content[b], role, at_index(place + ".content", b), text, chat));
    if (!text.empty() || chat.messages.size() == n_before) chat.add(role, std::move(text));
  }
  return Ok{};
}

Status read_anthropic_system(const OrderedJson& system, const std::string& path,
                             RequestedChat& chat) {
  LLM_TRY(std::string text, text_of(system, path, {"text"}));
  chat.add_system(std::move(text));
  return Ok{};
}

Status read_anthropic_tools(const OrderedJson& list, const std::string& path, RequestedChat& chat) {
  LLM_RETURN_IF_ERROR(check_list(list, path, "tools"));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = at_index(path, i);
    if (!list[i].is_object()) return wrong_field(place, shown_json(list[i]), "an object");
    const OrderedJson type = list[i].value("type", OrderedJson("custom"));
    if (type != "custom" && !type.is_null())
      return wrong_field(place + ".type", shown_json(type),
                         "custom: functions of the client's own");
    LLM_RETURN_IF_ERROR(add_tool(list[i], "input_schema", place, chat));
  }
  return Ok{};
}

Status read_anthropic_choice(const OrderedJson& choice, const std::string& path,
                             RequestedChat& chat) {
  using Kind = ToolChoice::Kind;
  LLM_TRY(const std::string type, type_of(choice, path));
  if (choice.value("disable_parallel_tool_use", OrderedJson()) == true) chat.parallel_calls = false;
  for (const auto& [word, kind] :
       {std::pair("auto", Kind::kAuto), std::pair("any", Kind::kRequired),
        std::pair("tool", Kind::kNamed), std::pair("none", Kind::kNone)}) {
    if (type != word) continue;
    chat.choice.kind = kind;
    if (kind == Kind::kNamed) {
      LLM_TRY(chat.choice.name, text_at(choice, "name", path));
    }
    return Ok{};
  }
  return wrong_field(path + ".type", shown_json(type), "auto, any, tool or none");
}

Status check_chat(RequestedChat& chat, const std::string& path) {
  using Kind = ToolChoice::Kind;
  if (chat.messages.empty()) return wrong_field(path, "[]", "an array of messages");
  const auto& last = chat.messages.back()["role"];
  if (last != "user" && last != "tool") {
    return wrong_field(at_index(path, chat.messages.size() - 1) + ".role", shown_json(last),
                       "user or tool: a reply is asked for");
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

void adapt_chat(const ReplyFormat& format, RequestedChat& chat) {
  if (!format.knows_tools) return spell_out(chat);
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
