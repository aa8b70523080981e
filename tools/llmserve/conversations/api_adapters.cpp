// Conversations as /v1/responses, /v1/messages and /api/chat have them.

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "tools/llmserve/conversations/conversation_parts.h"
#include "tools/llmserve/conversations/conversations.h"

namespace llm {
namespace {

/// Adds a call that a client's program answered, or will.
/// @param arguments  of the function of that name
Status add_item_call(const OrderedJson& item, const std::string& path, std::string arguments,
                     RequestedChat& chat) {
  LLM_TRY(std::string id, text_at(item, "call_id", path));
  LLM_TRY(std::string name, called_name(item, path));
  add_call(chat, call_json(std::move(id), std::move(name), std::move(arguments)));
  return Ok{};
}

/// What a call gave: a text, parts, or JSON of its own.
Status add_item_result(const OrderedJson& item, const std::string& path, RequestedChat& chat) {
  LLM_TRY(const std::string id, text_at(item, "call_id", path));
  const OrderedJson output = item.value("output", OrderedJson(""));
  if (output.is_object()) {
    add_result(chat, id, json_text(output));
    return Ok{};
  }
  LLM_TRY(std::string text, text_of(output, path + ".output", {"tool", chat}));
  add_result(chat, id, std::move(text));
  return Ok{};
}

/// Items of tools that have a type of their own ("local_shell_call"): where they name a call, they
/// are calls of a function called as the tool. What a vendor's servers did by themselves is left
/// out.
Status read_other_item(const OrderedJson& item, const std::string& type, const std::string& path,
                       RequestedChat& chat) {
  static constexpr std::string_view kCall = "_call";
  static constexpr std::string_view kOutput = "_call_output";
  const bool has_id = member_at(item, "call_id").is_string();
  if (type.ends_with(kOutput) && has_id) return add_item_result(item, path, chat);
  if (type.ends_with(kCall) && has_id) {
    OrderedJson called = item;
    called["name"] = type.substr(0, type.size() - kCall.size());
    const char* const member = item.contains("action") ? "action" : "operation";
    const OrderedJson arguments = item.value(member, OrderedJson::object());
    if (arguments.is_object()) return add_item_call(called, path, json_text(arguments), chat);
  }
  if (type == "item_reference")
    return wrong_field(path + ".type", "\"item_reference\"", "the item itself: nothing is kept");
  chat.notes.ignore(path + "." + type, "left out");
  return Ok{};
}

/// An item of /v1/responses' input.
Status read_item(const OrderedJson& item, const std::string& path, RequestedChat& chat) {
  std::string type = "message";
  if (item.contains("type")) {
    LLM_TRY(type, text_at(item, "type", path));
  }
  if (type == "reasoning") return Ok{};  // of OpenAI's models; no other reads it
  if (type == "function_call") {
    LLM_TRY(std::string arguments, arguments_at(item, path));
    return add_item_call(item, path, std::move(arguments), chat);
  }
  if (type == "custom_tool_call") {
    LLM_TRY(std::string input, text_at(item, "input", path));
    return add_item_call(item, path, text_arguments(std::move(input)), chat);
  }
  if (type == "function_call_output" || type == "custom_tool_call_output")
    return add_item_result(item, path, chat);
  if (type != "message") return read_other_item(item, type, path, chat);
  LLM_TRY(const std::string role, text_at(item, "role", path));
  const bool is_system = role == "system" || role == "developer";
  if (!is_system && role != "user" && role != "assistant")
    return wrong_field(path + ".role", shown_json(role), "system, developer, user or assistant");
  if (role == "user" || role == "assistant") chat.unread.reset();
  LLM_TRY(std::string text, text_of(member_at(item, "content"), path + ".content", {role, chat}));
  chat.add(is_system ? "system" : role, std::move(text));
  return Ok{};
}

/// Blocks of /v1/messages that stand between a message's texts.
/// @param flush  makes a message of the text so far
Status read_call_block(const OrderedJson& block, const std::string& type, const std::string& path,
                       const std::function<void()>& flush, RequestedChat& chat) {
  if (type == "tool_result") {
    LLM_TRY(const std::string id, text_at(block, "tool_use_id", path));
    LLM_TRY(std::string result,
            text_of(member_at(block, "content"), path + ".content", {"tool", chat}));
    flush();
    add_result(chat, id, std::move(result));
    return Ok{};
  }
  LLM_TRY(std::string id, text_at(block, "id", path));
  LLM_TRY(std::string name, text_at(block, "name", path));
  const OrderedJson& input = member_at(block, "input");
  if (!input.is_object()) return wrong_field(path + ".input", shown_json(input), "an object");
  flush();
  add_call(chat, call_json(std::move(id), std::move(name), json_text(input)));
  return Ok{};
}

/// A block of a message of /v1/messages. @param text  of the message so far
Status read_block(const OrderedJson& block, const std::string& role, const std::string& path,
                  std::string& text, RequestedChat& chat) {
  LLM_TRY(const std::string type, text_at(block, "type", path));
  const bool is_reply = role == "assistant";
  if (is_reply && (type == "thinking" || type == "redacted_thinking")) return Ok{};
  if (type == (is_reply ? "tool_use" : "tool_result")) {
    const auto flush = [&] {
      if (!text.empty()) chat.add(role, std::exchange(text, ""));
    };
    return read_call_block(block, type, path, flush, chat);
  }
  LLM_TRY(const std::string piece, text_of_part(block, path, {role, chat}));
  if (type != "text" && !text.empty() && !piece.empty()) text += "\n";
  text += piece;
  if (type != "text" && !piece.empty()) text += "\n";
  return Ok{};
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
    if (role == "user" || role == "assistant") chat.unread.reset();
    LLM_TRY(std::string text,
            text_of(member_at(given, "content"), place + ".content", {role, chat}));
    if (const OrderedJson& images = member_at(given, "images"); !images.empty())
      text += (text.empty() ? "" : "\n") + unreadable("image", place + ".images", {role, chat});
    if (role == "tool") {
      // Results come in the order of the calls.
      add_result(chat, id_of(n_results++), std::move(text));
      return Ok{};
    }
    if (role != "system" && role != "user" && role != "assistant")
      return wrong_field(place + ".role", shown_json(role), "system, user, assistant or tool");
    chat.add(role, std::move(text));
    const OrderedJson& thoughts = member_at(given, "thinking");
    if (thoughts.is_string()) chat.messages.back()["reasoning_content"] = thoughts;
    const OrderedJson& calls = member_at(given, "tool_calls");
    if (!calls.is_null() && !calls.is_array())
      return wrong_field(place + ".tool_calls", shown_json(calls), "an array");
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
    if (role != "user" && role != "assistant" && role != "system")
      return wrong_field(place + ".role", shown_json(role), "user, assistant or system");
    if (role == "user" || role == "assistant") chat.unread.reset();
    const OrderedJson& content = member_at(given, "content");
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
  LLM_TRY(std::string text, text_of(system, path, {"system", chat}));
  chat.add_system(std::move(text));
  return Ok{};
}

Status read_anthropic_choice(const OrderedJson& choice, const std::string& path,
                             RequestedChat& chat) {
  using Kind = ToolChoice::Kind;
  LLM_TRY(const std::string type, type_of(choice, path));
  if (member_at(choice, "disable_parallel_tool_use") == true) chat.parallel_calls = false;
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
