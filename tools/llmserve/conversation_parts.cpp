#include "tools/llmserve/conversation_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace llm {
namespace {

/// The last message where it is the assistant's, else a new one of theirs.
OrderedJson& last_reply(RequestedChat& chat) {
  if (chat.messages.empty() || chat.messages.back()["role"] != "assistant")
    chat.add("assistant", "");
  return chat.messages.back();
}

}  // namespace

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

Result<std::string> arguments_at(const OrderedJson& object, const std::string& path) {
  LLM_TRY(std::string text, text_at(object, "arguments", path));
  if (text.empty()) return std::string("{}");
  if (json_levels(text) > kMostJsonLevels)
    return wrong_field(path + ".arguments", shown_json(text),
                       fmt::format("JSON of at most {} levels", kMostJsonLevels));
  if (parse_ordered_json(text).is_object()) return text;
  return wrong_field(path + ".arguments", shown_json(text), "the JSON of an object");
}

void add_call(RequestedChat& chat, OrderedJson call) {
  chat.called[call["id"]] = call["function"]["name"];
  last_reply(chat)["tool_calls"].push_back(std::move(call));
}

void add_result(RequestedChat& chat, const std::string& id, std::string content) {
  chat.add("tool", std::move(content));
  OrderedJson& message = chat.messages.back();
  message["tool_call_id"] = id;
  if (const auto call = chat.called.find(id); call != chat.called.end())
    message["name"] = call->second;
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
  if (!chat.tool_names.insert(name).second)
    return wrong_field(path + ".name", shown_json(name), "a name that no other function has");
  chat.tools.push_back({{"type", "function"}, {"function", std::move(tool)}});
  return Ok{};
}

Status read_each(const OrderedJson& list, const std::string& path, std::string_view what,
                 const std::function<Status(const OrderedJson&, const std::string& path)>& read) {
  if (!list.is_array())
    return wrong_field(path, shown_json(list), fmt::format("an array of {}", what));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = at_index(path, i);
    if (!list[i].is_object()) return wrong_field(place, shown_json(list[i]), "an object");
    LLM_RETURN_IF_ERROR(read(list[i], place));
  }
  return Ok{};
}

}  // namespace llm
