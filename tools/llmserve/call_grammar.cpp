#include "tools/llmserve/call_grammar.h"

#include <string>
#include <utility>

namespace llm {
namespace {

constexpr std::size_t kMostCalls = 16;

/// Of the object that is a call of that function.
OrderedJson object_schema(const ReplyFormat& format, const std::string& name,
                          const OrderedJson& arguments) {
  return {{"type", "object"},
          {"properties", {{format.name_key, {{"const", name}}}, {format.arguments_key, arguments}}},
          {"required", {format.name_key, format.arguments_key}},
          {"additionalProperties", false}};
}

std::string_view without_leading_space(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

CallTags::Tag tag_of(const ReplyFormat& format, const OrderedJson& function, bool is_enforced) {
  const auto name = function["name"].get<std::string>();
  const OrderedJson any = {{"type", "object"}};
  const OrderedJson& arguments = is_enforced ? function["parameters"] : any;
  const std::string begin(without_leading_space(format.begin));
  if (format.call == ReplyFormat::Call::kJson)
    return {begin + name + format.middle, json_text(arguments), format.end};
  return {begin, json_text(object_schema(format, name, arguments)), format.end};
}

/// How many calls may follow each other as tags, and what stands between them.
void allow_several(const ReplyFormat& format, CallTags& tags) {
  std::string_view between = format.between;
  const std::string_view begin = without_leading_space(format.begin);
  if (between.size() < format.end.size() + begin.size() || !between.starts_with(format.end) ||
      !between.ends_with(begin))
    return;
  between.remove_prefix(format.end.size());
  between.remove_suffix(begin.size());
  tags.most = kMostCalls;
  tags.separator = between;
}

}  // namespace

Result<std::optional<GrammarSource>> call_grammar(const ReplyFormat& format,
                                                  const RequestedChat& chat) {
  using Kind = ToolChoice::Kind;
  if (chat.tools.is_null()) return std::optional<GrammarSource>();
  const bool is_forced = chat.choice.kind == Kind::kRequired || chat.choice.kind == Kind::kNamed;
  bool is_strict = false;
  for (const OrderedJson& tool : chat.tools) is_strict |= tool["function"].contains("strict");
  const bool is_object = format.call == ReplyFormat::Call::kObject;
  const bool is_marked =
      (is_object || format.call == ReplyFormat::Call::kJson) && !format.begin.empty();
  if (!is_forced && !(is_strict && is_marked)) return std::optional<GrammarSource>();
  if (!is_marked && !is_object) {
    return wrong_field("tool_choice", "a call that must be made",
                       "auto or none: this model's calls are no JSON between marks");
  }
  CallTags tags{.tags = {}, .free_text = !is_forced};
  OrderedJson choices = OrderedJson::array();
  for (const OrderedJson& tool : chat.tools) {
    const OrderedJson& function = tool["function"];
    if (chat.choice.kind == Kind::kNamed && function["name"] != chat.choice.name) continue;
    tags.tags.push_back(tag_of(format, function, is_forced || function.contains("strict")));
    choices.push_back(parse_ordered_json(tags.tags.back().schema));
  }
  if (!is_marked)
    return std::optional(
        GrammarSource{GrammarKind::kJsonSchema, json_text(OrderedJson{{"anyOf", choices}})});
  if (is_forced && chat.parallel_calls) allow_several(format, tags);
  return std::optional(tags.source());
}

}  // namespace llm
