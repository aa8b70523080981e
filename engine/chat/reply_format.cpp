#include "engine/chat/reply_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "engine/chat/value_reader.h"

namespace llm {
namespace {

using Text = std::string_view;
using Call = ReplyFormat::Call;

// Words that no template has, for the call that it is asked to write.
constexpr Text kName = "zzname";
constexpr std::array<Text, 2> kKeys = {"zzkeya", "zzkeyb"};
constexpr std::array<Text, 2> kValues = {"zzvaluea", "zzvalueb"};
constexpr Text kContent = "zzcontent";
constexpr std::array<Text, 2> kIds = {"zzcall001", "zzcall002"};

OrderedJson known_arguments() { return {{kKeys[0], kValues[0]}, {kKeys[1], kValues[1]}}; }

OrderedJson known_tools() {
  OrderedJson properties;
  for (const Text key : kKeys) properties[key] = {{"type", "string"}, {"description", "d"}};
  return OrderedJson::array(
      {{{"type", "function"},
        {"function",
         {{"name", kName},
          {"description", "d"},
          {"parameters",
           {{"type", "object"}, {"properties", properties}, {"required", kKeys}}}}}}});
}

OrderedJson conversation(OrderedJson reply) {
  OrderedJson messages = OrderedJson::array({{{"role", "user"}, {"content", "zzquestion"}}});
  if (!reply.is_null()) messages.push_back(std::move(reply));
  return messages;
}

/// A reply of n calls. @param as_text  arguments are a string of JSON
OrderedJson reply_with_calls(std::size_t n, const OrderedJson& content, bool as_text) {
  OrderedJson calls = OrderedJson::array();
  for (std::size_t i = 0; i < n; ++i) {
    OrderedJson arguments = known_arguments();
    if (as_text) arguments = json_text(arguments);
    calls.push_back({{"id", kIds[i]},
                     {"type", "function"},
                     {"function", {{"name", kName}, {"arguments", std::move(arguments)}}}});
  }
  return {{"role", "assistant"}, {"content", content}, {"tool_calls", std::move(calls)}};
}

std::size_t common_prefix(Text a, Text b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::size_t common_suffix(Text a, Text b) {
  std::size_t n = 0;
  while (n < std::min(a.size(), b.size()) && a[a.size() - 1 - n] == b[b.size() - 1 - n]) ++n;
  return n;
}

/// Replies as the template writes them.
struct Replies {
  std::string one;            ///< call
  std::string two;            ///< calls; empty: the template takes one only
  std::string end;            ///< what follows a reply's content
  std::string asked;          ///< the conversation up to the reply
  std::string content_begin;  ///< what stands before a reply's content
  bool text_arguments = false;
  bool null_content = false;
};

/// Where the text behind what asks for a reply begins; not inside of a marker.
std::size_t reply_begin(Text asked, Text whole) {
  std::size_t at = common_prefix(asked, whole);
  const std::size_t opened = at == 0 ? Text::npos : whole.find_last_of("<[", at - 1);
  if (opened != Text::npos && whole.substr(opened, at - opened).find_first_of(">]") == Text::npos)
    at = opened;
  return at;
}

std::optional<Replies> write_replies(const RenderChat& render) {
  const OrderedJson tools = known_tools();
  const auto asked = render(conversation(nullptr), tools, true);
  if (!asked.ok()) return std::nullopt;
  Replies replies;
  const auto plain =
      render(conversation({{"role", "assistant"}, {"content", kContent}}), tools, false);
  if (plain.ok()) {
    const std::size_t at = plain->find(kContent);
    if (at != std::string::npos) replies.end = plain->substr(at + kContent.size());
    if (at != std::string::npos && plain->starts_with(*asked))
      replies.content_begin = plain->substr(asked->size(), at - asked->size());
  }
  replies.asked = *asked;
  for (const bool as_text : {false, true}) {
    for (const OrderedJson& content : {OrderedJson(""), OrderedJson()}) {
      const auto one = render(conversation(reply_with_calls(1, content, as_text)), tools, false);
      if (!one.ok()) continue;
      const std::size_t begin = reply_begin(*asked, *one);
      replies.one = one->substr(begin);
      replies.text_arguments = as_text;
      replies.null_content = content.is_null();
      if (replies.one.find(kName) == std::string::npos) continue;
      const auto two = render(conversation(reply_with_calls(2, content, as_text)), tools, false);
      if (two.ok()) replies.two = two->substr(std::min(begin, two->size()));
      return replies;
    }
  }
  return std::nullopt;
}

/// The object in `text` that begins at `at` and ends where it says, in any spelling of values.
OrderedJson object_at(Text text, std::size_t at, std::size_t& end) {
  ValueReader reader;
  std::string json;
  end = at;
  for (auto step = ValueReader::Step::kMore; step != ValueReader::Step::kDone;) {
    if (step == ValueReader::Step::kFailed || end >= text.size()) return nullptr;
    const bool is_quote = text.substr(end).starts_with(ValueReader::kQuote);
    const std::size_t size = is_quote ? ValueReader::kQuote.size() : 1;
    bool is_taken = true;
    step = reader.take(text.substr(end, size), json, is_taken);
    end += size;
  }
  OrderedJson object = parse_ordered_json(json);
  return object.is_object() ? object : OrderedJson();
}

std::string key_of(const OrderedJson& object, const OrderedJson& value) {
  for (const auto& [key, member] : object.items())
    if (member == value) return key;
  return "";
}

/// The object around the name, or nothing. @return its begin and end in `reply`
std::optional<std::pair<std::size_t, std::size_t>> find_object(Text reply, std::size_t name,
                                                               ReplyFormat& format) {
  for (std::size_t at = reply.rfind('{', name); at != Text::npos;
       at = at == 0 ? Text::npos : reply.rfind('{', at - 1)) {
    std::size_t end = 0;
    const OrderedJson object = object_at(reply, at, end);
    if (!object.is_object() || end < name) continue;
    const std::string name_key = key_of(object, kName);
    OrderedJson arguments = known_arguments();
    std::string arguments_key = key_of(object, arguments);
    if (name_key.empty() || arguments_key.empty()) return std::nullopt;
    format.call = Call::kObject;
    format.name_key = name_key;
    format.arguments_key = arguments_key;
    return std::pair(at, end);
  }
  return std::nullopt;
}

/// A name and its arguments as one object, or as keywords. @return the end of the call
std::optional<std::size_t> find_json(Text reply, std::size_t name, std::size_t key,
                                     ReplyFormat& format) {
  const std::size_t after_name = name + kName.size();
  const bool has_keywords = reply.substr(after_name).starts_with('(');
  const std::size_t begin = has_keywords ? after_name : reply.rfind('{', key);
  std::size_t end = 0;
  if (begin == Text::npos || begin < name) return std::nullopt;
  if (object_at(reply, begin, end) == known_arguments()) {
    format.call = has_keywords ? Call::kKeywords : Call::kJson;
    format.middle = reply.substr(after_name, begin - after_name);
    return end;
  }
  return std::nullopt;
}

/// A name and texts around each argument's name and value. @return the end of the call
std::optional<std::size_t> find_pairs(Text reply, std::size_t name, std::size_t key,
                                      ReplyFormat& format) {
  const std::size_t value = reply.find(kValues[0], key);
  const std::size_t next_key = reply.find(kKeys[1], value);
  const std::size_t next_value = reply.find(kValues[1], next_key);
  if (next_value == Text::npos) return std::nullopt;
  const std::size_t after_name = name + kName.size();
  const std::size_t after_value = value + kValues[0].size();
  const Text before_first = reply.substr(after_name, key - after_name);
  const Text before_next = reply.substr(after_value, next_key - after_value);
  std::size_t n = common_suffix(before_first, before_next);
  // It begins no mark's rest: ">" of "</value>" and of "<name>" are not its.
  const Text own = before_next.substr(0, before_next.size() - n);
  const std::size_t opened = own.rfind('<');
  if (opened != Text::npos && own.find('>', opened) == Text::npos) {
    const std::size_t closed = before_next.find('>', own.size());
    n = closed == Text::npos ? 0 : before_next.size() - closed - 1;
  }
  format.key_begin = before_next.substr(before_next.size() - n);
  format.key_end = reply.substr(key + kKeys[0].size(), value - key - kKeys[0].size());
  format.value_end = before_next.substr(0, before_next.size() - n);
  format.middle = before_first.substr(0, before_first.size() - n);
  const std::size_t last = next_value + kValues[1].size();
  const bool fits = n > 0 && !format.key_end.empty() && !format.value_end.empty() &&
                    reply.substr(last).starts_with(format.value_end);
  if (!fits) return std::nullopt;
  format.call = Call::kPairs;
  return last + format.value_end.size();
}

/// A name and elements that bear the arguments' names. @return the end of the call
std::optional<std::size_t> find_elements(Text reply, std::size_t name, std::size_t key,
                                         ReplyFormat& format) {
  const std::size_t value = reply.find(kValues[0], key);
  const std::size_t next_key = reply.find(kKeys[1], value);
  const std::size_t closed = reply.substr(0, next_key).find(kKeys[0], value);
  if (closed == Text::npos) return std::nullopt;
  const std::size_t after_name = name + kName.size();
  const std::size_t after_key = key + kKeys[0].size();
  const std::size_t after_value = value + kValues[0].size();
  format.key_end = reply.substr(after_key, value - after_key);
  format.value_end = reply.substr(after_value, closed - after_value);
  Text rest = reply.substr(closed + kKeys[0].size(), next_key - closed - kKeys[0].size());
  if (!rest.starts_with(format.key_end)) return std::nullopt;
  rest.remove_prefix(format.key_end.size());
  const Text before_first = reply.substr(after_name, key - after_name);
  const std::size_t n = common_suffix(before_first, rest);
  format.key_begin = rest.substr(rest.size() - n);
  format.middle = before_first.substr(0, before_first.size() - n);
  const std::string last =
      std::string(kValues[1]) + format.value_end + std::string(kKeys[1]) + format.key_end;
  const std::size_t end = reply.find(last, next_key);
  if (n == 0 || format.key_end.size() != 1 || end == Text::npos) return std::nullopt;
  format.call = Call::kElements;
  return end + last.size();
}

void read_calls(const Replies& replies, std::span<const std::string> ends, ReplyFormat& format) {
  const Text one = replies.one;
  const std::size_t name = one.find(kName);
  const std::size_t key = one.find(kKeys[0], name);
  std::size_t begin = name;
  std::size_t end = 0;
  if (const auto object = find_object(one, name, format)) {
    std::tie(begin, end) = *object;
  } else if (key == Text::npos) {
    return;
  } else if (const auto json = find_json(one, name, key, format)) {
    end = *json;
  } else if (const auto elements = find_elements(one, name, key, format)) {
    end = *elements;
  } else if (const auto pairs = find_pairs(one, name, key, format)) {
    end = *pairs;
  } else {
    return;
  }
  Text before = one.substr(0, begin);
  if (!format.think_end.empty()) {
    if (const std::size_t thought = before.rfind(format.think_end); thought != Text::npos)
      before.remove_prefix(thought + format.think_end.size());
  }
  format.begin = before;
  Text after = one.substr(end);
  if (!replies.end.empty() && after.ends_with(replies.end)) after.remove_suffix(replies.end.size());
  for (const std::string& spelling : ends)
    if (!spelling.empty()) after = after.substr(0, after.find(spelling));
  format.end = after;
  if (const std::size_t next = replies.two.find(kName, end); next != std::string::npos)
    format.between = replies.two.substr(end, next - (name - begin) - end);
  // A prompt may end with what begins a call: Functionary's.
  if (format.call == Call::kJson && before.empty() && !format.between.empty() &&
      replies.asked.ends_with(format.between)) {
    format.begin = format.between;
    format.starts_in_call = true;
    format.content_begin = replies.content_begin;
  }
  for (std::string* text : {&format.begin, &format.middle, &format.between, &format.end})
    for (const Text id : kIds)
      if (const std::size_t at = text->find(id); at != std::string::npos)
        text->replace(at, id.size(), "000000000");
  if (format.begin.ends_with("to=functions.")) {
    format.call = Call::kChannels;
    format.begin = format.between = format.end = "";
  }
  // Where nothing marks a call, its shape must: an object or a list alone is one.
  const bool is_marked =
      format.begin.find_first_of("<[{|") != std::string::npos || format.starts_in_call;
  if (format.call != Call::kChannels && !is_marked && !format.is_bare()) format.call = Call::kNone;
}

/// A value as Python writes it.
std::string python_text(const OrderedJson& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_structured()) return json_text(value);
  std::string text;
  for (const auto& [key, member] : value.items()) {
    if (!text.empty()) text += ", ";
    if (value.is_object()) text += json_text(OrderedJson(key)) + ": ";
    text += python_text(member);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

/// Calls of a template that tells of functions and writes no calls: by the marks that `text` has.
void guess_calls(Text text, ReplyFormat& format) {
  constexpr std::array<std::array<Text, 3>, 5> kMarks = {
      {{"<|tool_call_start|>", "<|tool_call_start|>", "<|tool_call_end|>"},
       {"<|tool_list_start|>", "<|tool_call_start|>", "<|tool_call_end|>"},
       {"<|tool_call|>", "<|tool_call|>", ""},
       {"<TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>"},
       {"<tool_call>", "<tool_call>", "</tool_call>"}}};
  const auto* const found = std::ranges::find_if(
      kMarks, [&](const std::array<Text, 3>& marks) { return text.find(marks[0]) != Text::npos; });
  if (found == kMarks.end()) return;
  const bool has_keywords = (*found)[1] == "<|tool_call_start|>";
  const bool is_list = has_keywords || (*found)[1] != "<tool_call>";
  format.call = has_keywords ? Call::kKeywords : Call::kObject;
  format.begin = std::string((*found)[1]) + (is_list ? "[" : "\n");
  format.end = (is_list ? "]" : "\n") + std::string((*found)[2]);
  format.between = is_list ? ", " : format.end + "\n" + format.begin;
}

ReplyFormat with_thoughts(Text jinja) {
  constexpr std::array<std::pair<Text, Text>, 6> kThoughts = {
      {{"<think>", "</think>"},
       {"[THINK]", "[/THINK]"},
       {"<|START_THINKING|>", "<|END_THINKING|>"},
       {"<mm:think>", "</mm:think>"},
       {"<seed:think>", "</seed:think>"},
       {"<|channel>thought", "<channel|>"}}};
  ReplyFormat format;
  for (const auto& [begin, end] : kThoughts) {
    if (jinja.find(begin) == Text::npos || jinja.find(end) == Text::npos) continue;
    format.think_begin = begin;
    format.think_end = end;
    break;
  }
  return format;
}

}  // namespace

ReplyFormat reply_format(Text jinja, const RenderChat& render, std::span<const std::string> ends,
                         Text marks) {
  ReplyFormat format = with_thoughts(jinja);
  const auto with = render(conversation(nullptr), known_tools(), true);
  const auto without = render(conversation(nullptr), nullptr, true);
  // One that fails without functions has nothing to say without them.
  format.knows_tools = with.ok() && (!without.ok() || *with != *without);
  if (jinja.find("<|python_tag|>") != Text::npos) format.more_begins = {"<|python_tag|>"};
  const auto replies = write_replies(render);
  if (!replies) {
    for (const Text text : {jinja, marks})
      if (format.knows_tools && format.call == Call::kNone) guess_calls(text, format);
    return format;
  }
  format.text_arguments = replies->text_arguments;
  format.null_content = replies->null_content;
  read_calls(*replies, ends, format);
  format.writes_calls = format.call != Call::kNone && (format.knows_tools || !format.is_bare());
  return format;
}

std::string call_example(const ReplyFormat& format) {
  const std::string object = R"({"...": "..."})";
  switch (format.call) {
    case Call::kObject:
      return fmt::format("{}{{{}: \"...\", {}: {}}}{}", format.begin,
                         json_text(OrderedJson(format.name_key)),
                         json_text(OrderedJson(format.arguments_key)), object, format.end);
    case Call::kPairs:
      return format.begin + "NAME" + format.middle + format.key_begin + "ARGUMENT" +
             format.key_end + "VALUE" + format.value_end + format.end;
    case Call::kElements:
      return format.begin + "NAME" + format.middle + format.key_begin + "ARGUMENT" +
             format.key_end + "VALUE" + format.value_end + "ARGUMENT" + format.key_end + format.end;
    case Call::kKeywords:
      return format.begin + "NAME(ARGUMENT=...)" + format.end;
    default:
      return format.begin + "NAME" + format.middle + object + format.end;
  }
}

std::string text_of_calls(const ReplyFormat& format, const OrderedJson& calls) {
  const std::string between =
      format.between.empty() ? format.end + "\n" + format.begin : format.between;
  std::string text;
  for (const OrderedJson& call : calls) {
    const OrderedJson& name = call["function"]["name"];
    const OrderedJson arguments =
        parse_ordered_json(call["function"]["arguments"].get_ref<const std::string&>());
    text += text.empty() ? format.begin : between;
    if (format.call == Call::kObject) {
      text += json_text(OrderedJson{{format.name_key, name}, {format.arguments_key, arguments}});
      continue;
    }
    std::string keywords;
    for (const auto& [key, value] : arguments.items())
      keywords += (keywords.empty() ? "" : ", ") + key + "=" + python_text(value);
    text += name.get<std::string>() + "(" + keywords + ")";
  }
  return text + format.end;
}

ReplyFormat usual_reply_format(Text jinja) {
  ReplyFormat format = with_thoughts(jinja);
  format.call = Call::kObject;
  format.begin = "<tool_call>\n";
  format.end = "\n</tool_call>";
  return format;
}

}  // namespace llm
