#include "tools/llmserve/conversations/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "engine/grammar/schema_rules.h"

namespace llm {
namespace {

using Call = ReplyFormat::Call;

constexpr std::size_t kMostCalls = 16;
constexpr std::size_t kMostWidening = std::size_t{1} << 20;  // bytes of schemas, written anew

std::string without_leading_space(const std::string& text) {
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

/// How the format's calls are written, from the name on: what stands before the arguments, and
/// behind them.
struct Body {
  std::string head;
  std::string tail = {};
  ArgumentForm form = {};
};

Body body_of(const ReplyFormat& format, const std::string& name) {
  using Kind = ArgumentForm::Kind;
  switch (format.call) {
    case Call::kObject: {
      const auto key = [](const std::string& text) { return json_text(OrderedJson(text)); };
      return {
          fmt::format("{{{}: {}, {}: ", key(format.name_key), key(name), key(format.arguments_key)),
          "}"};
    }
    case Call::kPairs:
    case Call::kElements:
      return {name + format.middle,
              "",
              {format.call == Call::kPairs ? Kind::kPairs : Kind::kElements, format.key_begin,
               format.key_end, format.value_end}};
    case Call::kKeywords:
      return {name, "", {Kind::kKeywords}};
    case Call::kChannels:
      return {name + " <|constrain|>json<|message|>"};
    default:
      return {name + format.middle};
  }
}

// Headers of gpt-oss's messages. Source: OpenAI's "Harmony response format".

/// Those of what is no call, and what ends a message.
std::vector<std::string> other_headers() {
  std::vector<std::string> all = {"<|end|>"};
  for (const std::string_view start : {"", "<|start|>assistant"})
    for (const std::string_view channel : {"analysis", "final", "commentary"})
      all.push_back(fmt::format("{}<|channel|>{}<|message|>", start, channel));
  return all;
}

/// Those of a function's call: its name behind the channel's, or before it, which may be what a
/// reply begins with.
CallTags::Tag called_with_headers(const std::string& name, std::string schema) {
  CallTags::Tag tag{"<|channel|>commentary to=functions.", std::move(schema), "",
                    name + " <|constrain|>json<|message|>"};
  for (const std::string_view start : {"", "<|start|>assistant"}) {
    for (const std::string_view json : {" <|constrain|>json", " json", ""}) {
      tag.more.push_back({fmt::format("{}<|channel|>commentary to=functions.", start),
                          fmt::format("{}{}<|message|>", name, json)});
      tag.more.push_back({fmt::format("{} to=functions.", start),
                          fmt::format("{}<|channel|>commentary{}<|message|>", name, json),
                          start.empty()});
    }
  }
  return tag;
}

/// The format's begin and end, which stand around calls.
ReplyFormat marked(ReplyFormat format) {
  format.begin = without_leading_space(format.begin);
  if (format.starts_in_call) format.begin.clear();
  if (format.call == Call::kChannels) format.begin = "<|channel|>commentary to=functions.";
  return format;
}

/// What may still be done with the schemas of a request.
struct Allowance {
  std::size_t bytes = Grammar::kMostBytes;
  std::size_t widening = kMostWidening;
};

/// A function's schema as it is enforced; one without properties takes no arguments.
Result<OrderedJson> enforced(const OrderedJson& function, bool is_strict, const ArgumentForm& form,
                             const std::string& place, Allowance& left,
                             std::vector<std::string>& dropped) {
  const std::size_t bytes = json_text(function["parameters"]).size();
  if (bytes > left.bytes)
    return wrong_field("tools", "longer schemas of enforced functions",
                       fmt::format("at most {} bytes in all", Grammar::kMostBytes));
  left.bytes -= bytes;
  OrderedJson schema = function["parameters"];
  if (!schema.is_object() || schema.empty())
    schema = {{"type", "object"}, {"properties", OrderedJson::object()}};
  // Arguments are an object, also where the schema leaves it open.
  const bool is_open =
      std::ranges::none_of(std::array{"type", "$ref", "anyOf", "oneOf", "allOf", "const", "enum"},
                           [&](const char* name) { return schema.contains(name); });
  if (is_open) schema["type"] = "object";
  if (!is_strict) {
    std::vector<std::string> pointers;
    schema = enforceable_schema(schema, form, pointers, left.widening);
    for (const std::string& pointer : pointers) dropped.push_back(place + pointer);
    return schema;
  }
  RuleText rules;
  const auto written = arguments_expression(json_text(schema), form, rules);
  if (written.ok()) return schema;
  Error error = written.error();
  error.field = place + error.field;
  return error;
}

}  // namespace

Result<CallGrammar> call_grammar(const ReplyFormat& given, const RequestedChat& chat,
                                 const std::string& schema_at) {
  using Kind = ToolChoice::Kind;
  if (chat.tools.is_null()) return CallGrammar();
  const bool is_forced = chat.choice.kind == Kind::kRequired || chat.choice.kind == Kind::kNamed;
  const auto is_strict = [](const OrderedJson& function) { return function.contains("strict"); };
  const bool has_strict = std::ranges::any_of(
      chat.tools, [&](const OrderedJson& tool) { return is_strict(tool["function"]); });
  const ReplyFormat format = marked(given);
  // Among free text a call must begin with a mark of its own.
  const bool is_marked = format.call != Call::kNone && !format.is_bare() && !format.begin.empty();
  if (!is_forced && !(has_strict && is_marked)) return CallGrammar();
  if (format.call == Call::kNone) {
    return wrong_field("tool_choice", "a required call",
                       "auto or none: the format of calls in this model's template is not known");
  }
  CallTags tags{.tags = {}, .free_text = !is_forced};
  const bool has_headers = !is_forced && format.call == Call::kChannels;
  if (has_headers) tags.others = other_headers();
  CallGrammar grammar;
  Allowance left;
  for (std::size_t i = 0; i < chat.tools.size(); ++i) {
    const OrderedJson& function = chat.tools[i]["function"];
    if (chat.choice.kind == Kind::kNamed && function["name"] != chat.choice.name) continue;
    Body body = body_of(format, function["name"].get<std::string>());
    OrderedJson schema = {{"type", "object"}};
    if (is_forced || is_strict(function)) {
      LLM_TRY(schema, enforced(function, is_strict(function), body.form,
                               fmt::format("tools/{}{}", i, schema_at), left, grammar.dropped));
    }
    std::string text = json_text(schema);
    if (has_headers)
      tags.tags.push_back(called_with_headers(function["name"], std::move(text)));
    else if (is_forced)
      tags.tags.push_back({body.head, std::move(text), body.tail, "", std::move(body.form)});
    else
      tags.tags.push_back({format.begin, std::move(text), body.tail + format.end,
                           std::move(body.head), std::move(body.form)});
  }
  if (is_forced) {
    tags.open = format.begin;
    tags.close = format.end;
    const bool may_follow = chat.parallel_calls && !format.between.empty();
    tags.most = may_follow ? kMostCalls : 1;
    if (may_follow) tags.separator = format.between;
  }
  grammar.source = tags.source();
  return grammar;
}

}  // namespace llm
