// The functions that a request names, in the shapes of all APIs.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "tools/llmserve/conversations/conversation_parts.h"
#include "tools/llmserve/conversations/conversations.h"

namespace llm {
namespace {

constexpr std::size_t kMostGrammar = 8192;  // bytes of one that a model is told of

/// The name by which the model knows a function of a namespace.
std::string joined_name(const std::string& name_space, const std::string& name) {
  if (name_space.empty()) return name;
  return name_space + (name_space.ends_with("__") ? "" : "__") + name;
}

/// A tool that nothing here can be done for: the client names it, and the vendor's servers run it.
/// One that has a function is the client's own, and so may be a slip in the type's name.
Status leave_out(const OrderedJson& tool, const std::string& type, const std::string& path,
                 RequestedChat& chat) {
  static const std::set<std::string> kOwn = {"function", "custom", "namespace"};
  const bool is_own = tool.contains("function") || tool.contains("input_schema");
  if (is_own || kOwn.contains(meant_field(type, kOwn)))
    return wrong_field(path + ".type", shown_json(type), "function");
  chat.notes.ignore(fmt::format("{}.{}", path, type),
                    "left out: only its vendor's servers have that tool");
  return Ok{};
}

/// A function of one text.
/// @param tool  has name, description and format
Status add_text_tool(const OrderedJson& tool, const std::string& name_space,
                     const std::string& path, RequestedChat& chat) {
  OrderedJson function = {{"name", member_at(tool, "name")},
                          {"description", member_at(tool, "description")}};
  const OrderedJson& format = member_at(tool, "format");
  if (format.is_object() && member_at(format, "type") == "grammar") {
    // OpenAI has it at the top, or in an object of its own in chats.
    const OrderedJson grammar = format.value("grammar", format);
    const OrderedJson definition =
        grammar.is_object() ? member_at(grammar, "definition") : OrderedJson();
    chat.notes.change(path + ".format", "described to the model, not enforced");
    if (definition.is_string() && definition.get_ref<const std::string&>().size() <= kMostGrammar)
      function["description"] = fmt::format(
          "{}\n\nThe input is a text of this grammar:\n{}",
          function["description"].is_string() ? function["description"].get<std::string>() : "",
          definition.get<std::string>());
  }
  function["parameters"] = {{"type", "object"},
                            {"properties", {{kTextArgument, {{"type", "string"}}}}},
                            {"required", {kTextArgument}},
                            {"additionalProperties", false}};
  return add_tool(function, "parameters", path, chat,
                  {.name_space = name_space, .takes_text = true});
}

Status read_tool(const OrderedJson& tool, const std::string& name_space, const std::string& path,
                 bool is_flat, RequestedChat& chat);

/// The functions in it are functions of their own.
Status read_name_space(const OrderedJson& tool, const std::string& path, RequestedChat& chat) {
  LLM_TRY(const std::string name, text_at(tool, "name", path));
  const OrderedJson& tools = member_at(tool, "tools");
  if (tools.is_null()) return Ok{};
  return read_each(tools, path + ".tools", "functions",
                   [&](const OrderedJson& one, const std::string& place) {
                     return read_tool(one, name, place, /*is_flat=*/true, chat);
                   });
}

Status read_tool(const OrderedJson& tool, const std::string& name_space, const std::string& path,
                 bool is_flat, RequestedChat& chat) {
  LLM_TRY(const std::string type, text_at(tool, "type", path));
  const bool is_custom = type == "custom";
  if (type == "namespace" && name_space.empty()) return read_name_space(tool, path, chat);
  if (type != "function" && !is_custom) return leave_out(tool, type, path, chat);
  // Some clients send one API's shape to the other.
  const OrderedJson& nested = member_at(tool, type);
  const bool has_nested = nested.is_object();
  if (!is_flat && !has_nested && !tool.contains("name"))
    return wrong_field(path + "." + type, shown_json(nested), "an object");
  const OrderedJson& function = has_nested ? nested : tool;
  const std::string place = has_nested ? path + "." + type : path;
  if (is_custom) return add_text_tool(function, name_space, place, chat);
  return add_tool(function, "parameters", place, chat, {.name_space = name_space});
}

/// OpenAI's list of those functions of `tools` that may be called. The others are left out.
Status read_allowed_tools(const OrderedJson& choice, const std::string& path, RequestedChat& chat) {
  const OrderedJson allowed = choice.value("allowed_tools", choice);
  if (!allowed.is_object()) return wrong_field(path, shown_json(choice), "an object");
  const OrderedJson mode = allowed.value("mode", OrderedJson("auto"));
  if (mode != "auto" && mode != "required")
    return wrong_field(path + ".mode", shown_json(mode), "auto or required");
  std::unordered_set<std::string, SeededHash> names;
  const auto read = [&](const OrderedJson& tool, const std::string& place) -> Status {
    const OrderedJson type = tool.value("type", OrderedJson("function"));
    if (type != "function" && type != "custom") return Ok{};
    LLM_TRY(std::string name, called_name(tool.value(type.get<std::string>(), tool), place));
    names.insert(std::move(name));
    return Ok{};
  };
  LLM_RETURN_IF_ERROR(read_each(member_at(allowed, "tools"), path + ".tools", "functions", read));
  chat.choice.kind = mode == "required" ? ToolChoice::Kind::kRequired : ToolChoice::Kind::kAuto;
  chat.choice.allowed = std::move(names);
  return Ok{};
}

}  // namespace

std::string text_arguments(std::string input) {
  return json_text(OrderedJson{{kTextArgument, std::move(input)}});
}

Result<std::string> called_name(const OrderedJson& call, const std::string& path) {
  LLM_TRY(const std::string name, text_at(call, "name", path));
  const OrderedJson& name_space = member_at(call, "namespace");
  return joined_name(name_space.is_string() ? name_space.get<std::string>() : "", name);
}

Status add_tool(const OrderedJson& function, const char* schema_name, const std::string& path,
                RequestedChat& chat, ToolOrigin origin) {
  LLM_TRY(origin.name, text_at(function, "name", path));
  const std::string name = joined_name(origin.name_space, origin.name);
  const bool is_name = !name.empty() && name.size() <= 128 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
  if (!is_name)
    return wrong_field(path + ".name", shown_json(name),
                       "1 to 128 letters, digits, '_', '-' and '.'");
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
  const OrderedJson& strict = member_at(function, "strict");
  if (!strict.is_null() && !strict.is_boolean())
    return wrong_field(path + ".strict", shown_json(strict), "true or false");
  if (strict == true) tool["strict"] = true;
  if (!chat.tools.is_array()) chat.tools = OrderedJson::array();
  if (!chat.tool_names.insert(name).second)
    return wrong_field(path + ".name", shown_json(name), "a name that no other function has");
  if (!origin.name_space.empty() || origin.takes_text) chat.origins[name] = std::move(origin);
  chat.tools.push_back({{"type", "function"}, {"function", std::move(tool)}});
  return Ok{};
}

Status read_tools(const OrderedJson& list, const std::string& path, bool is_flat,
                  RequestedChat& chat) {
  return read_each(list, path, "functions", [&](const OrderedJson& tool, const std::string& place) {
    return read_tool(tool, "", place, is_flat, chat);
  });
}

Status read_anthropic_tools(const OrderedJson& list, const std::string& path, RequestedChat& chat) {
  const auto read = [&](const OrderedJson& tool, const std::string& place) -> Status {
    const OrderedJson& type = member_at(tool, "type");
    if (!type.is_string() || type == "custom" || tool.contains("input_schema"))
      return add_tool(tool, "input_schema", place, chat);
    return leave_out(tool, type.get<std::string>(), place, chat);
  };
  return read_each(list, path, "tools", read);
}

JsonSchema tools_schema(bool is_flat) {
  JsonSchema function = {{"type", "object"},
                         {"properties",
                          {{"name", {{"type", "string"}, {"pattern", "^[a-zA-Z0-9_.-]{1,128}$"}}},
                           {"description", {{"type", {"string", "null"}}}},
                           {"parameters", {{"type", {"object", "null"}}}},
                           {"strict", {{"type", {"boolean", "null"}}}}}}};
  const JsonSchema type = {{"type", "string"}};
  if (!is_flat) {
    function = {{"type", "object"},
                {"required", {"type"}},
                {"properties", {{"type", type}, {"function", function}}}};
  } else {
    function["properties"]["type"] = type;
    function["required"] = {"type"};
  }
  return array_of(std::move(function));
}

Status read_tool_choice(const OrderedJson& choice, const std::string& path, RequestedChat& chat) {
  using Kind = ToolChoice::Kind;
  if (choice.is_object()) {
    const OrderedJson& type = member_at(choice, "type");
    if (type == "allowed_tools") return read_allowed_tools(choice, path, chat);
    const bool is_custom = type == "custom";
    const OrderedJson function = choice.value(is_custom ? "custom" : "function", choice);
    if ((type != "function" && !is_custom) || !function.is_object())
      return wrong_field(path, shown_json(choice), "the name of a function");
    LLM_TRY(chat.choice.name, called_name(function, path));
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

}  // namespace llm
