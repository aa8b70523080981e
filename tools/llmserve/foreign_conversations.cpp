// Conversations as /v1/responses, /v1/messages and /api/chat have them.

#include <fmt/format.h>

#include <utility>

#include "tools/llmserve/conversation_parts.h"
#include "tools/llmserve/conversations.h"

namespace llm {
namespace {

/// An item of /v1/responses' input.
Status read_item(const OrderedJson& item, const std::string& path, RequestedChat& chat) {
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
  LLM_TRY(const std::string type, text_at(block, "type", path));
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

}  // namespace

Status read_response_input(const OrderedJson& input, const std::string& path, RequestedChat& chat) {
  if (input.is_string()) {
    chat.add("user", input.get<std::string>());
    return Ok{};
  }
  return read_each(
      input, path, "items, or a string",
      [&](const OrderedJson& item, const std::string& at) { return read_item(item, at, chat); });
}

Status read_ollama_messages(const OrderedJson& list, const std::string& path, RequestedChat& chat) {
  std::size_t n_calls = 0;
  std::size_t n_results = 0;
  const auto id_of = [](std::size_t n) { return fmt::format("call{:05}", n); };
  const auto read = [&](const OrderedJson& given, const std::string& place) -> Status {
    LLM_TRY(const std::string role, text_at(given, "role", place));
    LLM_TRY(std::string text,
            text_of(given.value("content", OrderedJson()), place + ".content", {}));
    if (const OrderedJson images = given.value("images", OrderedJson()); !images.empty())
      return wrong_field(place + ".images", shown_json(images), "none");
    if (role == "tool") {
      // Results come in the order of the calls.
      add_result(chat, id_of(n_results++), std::move(text));
      return Ok{};
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
    return Ok{};
  };
  return read_each(list, path, "messages", read);
}

Status read_anthropic_messages(const OrderedJson& list, const std::string& path,
                               RequestedChat& chat) {
  const auto read = [&](const OrderedJson& given, const std::string& place) -> Status {
    LLM_TRY(const std::string role, text_at(given, "role", place));
    if (role != "user" && role != "assistant")
      return wrong_field(place + ".role", shown_json(role), "user or assistant");
    const OrderedJson content = given.value("content", OrderedJson());
    std::string text = content.is_string() ? content.get<std::string>() : "";
    const std::size_t n_before = chat.messages.size();
    if (!content.is_string())
      LLM_RETURN_IF_ERROR(read_each(content, place + ".content", "blocks, or a string",
                                    [&](const OrderedJson& block, const std::string& at) {
                                      return read_block(block, role, at, text, chat);
                                    }));
    if (!text.empty() || chat.messages.size() == n_before) chat.add(role, std::move(text));
    return Ok{};
  };
  return read_each(list, path, "messages", read);
}

Status read_anthropic_system(const OrderedJson& system, const std::string& path,
                             RequestedChat& chat) {
  LLM_TRY(std::string text, text_of(system, path, {"text"}));
  chat.add_system(std::move(text));
  return Ok{};
}

Status read_anthropic_tools(const OrderedJson& list, const std::string& path, RequestedChat& chat) {
  const auto read = [&](const OrderedJson& tool, const std::string& place) -> Status {
    const OrderedJson type = tool.value("type", OrderedJson("custom"));
    if (type != "custom" && !type.is_null())
      return wrong_field(place + ".type", shown_json(type),
                         "custom: functions of the client's own");
    return add_tool(tool, "input_schema", place, chat);
  };
  return read_each(list, path, "tools", read);
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

}  // namespace llm
