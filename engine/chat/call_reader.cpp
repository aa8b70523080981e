#include "engine/chat/call_reader.h"

#include <algorithm>
#include <utility>

namespace llm {
namespace {

using Text = std::string_view;
using Step = CallReader::Step;

constexpr Text kSpaces = " \t\r\n";
constexpr std::size_t kMostLevels = 100;

/// One line break at each end goes: it stands around values that are lines of their own.
std::string without_line_breaks(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.starts_with('\n')) text.erase(0, 1);
  return text;
}

/// Of an object that may not be there.
const OrderedJson* member_of(const OrderedJson* object, Text name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto at = object->find(name);
  return at == object->end() ? nullptr : &*at;
}

/// What OpenAI's list of tools says of a function; nullptr: there is none of that name.
const OrderedJson* function_of(const OrderedJson& tools, const std::string& name) {
  for (const OrderedJson& tool : tools) {
    const OrderedJson* const function = member_of(&tool, "function");
    const OrderedJson* const known = member_of(function, "name");
    if (known != nullptr && *known == name) return function;
  }
  return nullptr;
}

/// JSON of a model: it is printed by recursion, so its levels are bounded. Brackets in strings
/// count, which no real arguments have so many of.
OrderedJson parse_bounded(Text text) {
  std::size_t open = 0;
  for (const char c : text) {
    if (c == '{' || c == '[') ++open;
    if ((c == '}' || c == ']') && open > 0) --open;
    if (open > kMostLevels) return OrderedJson(OrderedJson::value_t::discarded);
  }
  return parse_ordered_json(text);
}

Step read_json(Text text, std::size_t& at, OrderedJson& value) {
  if (at >= text.size()) return Step::kNeedsMore;
  if (text[at] != '{') return Step::kFailed;
  const std::size_t end = json_object_end(text, at);
  if (end == Text::npos) return Step::kNeedsMore;
  value = parse_bounded(text.substr(at, end - at));
  if (!value.is_object()) return Step::kFailed;
  at = end;
  return Step::kDone;
}

/// Up to `end` from `at` on, which moves behind it.
Step read_until(Text text, Text end, std::size_t& at, std::string& found) {
  const std::size_t place = text.find(end, at);
  if (place == Text::npos) return Step::kNeedsMore;
  found = text.substr(at, place - at);
  at = place + end.size();
  return Step::kDone;
}

}  // namespace

Text without_leading_spaces(Text text) {
  return text.substr(std::min(text.find_first_not_of(kSpaces), text.size()));
}

Text without_spaces(Text text) {
  text = without_leading_spaces(text);
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

bool may_become(Text text, Text marker) {
  return text.size() < marker.size() && marker.starts_with(text);
}

bool CallReader::is_known(const std::string& name) const {
  return function_of(tools_, name) != nullptr;
}

Step CallReader::read(Text text, bool is_whole, const std::string& channel, std::size_t& at,
                      FunctionCall& call) const {
  switch (format_.call) {
    case ReplyFormat::Call::kNone:
      return Step::kFailed;
    case ReplyFormat::Call::kObject:
      return read_object(text, at, call);
    case ReplyFormat::Call::kJson:
      return read_named(text, at, call);
    case ReplyFormat::Call::kPairs:
      return read_pairs(text, is_whole, at, call);
    case ReplyFormat::Call::kChannels:
      break;
  }
  OrderedJson arguments;
  const Step step = read_json(text, at, arguments);
  if (step == Step::kDone) call = {channel, json_text(arguments)};
  return step;
}

Step CallReader::read_object(Text text, std::size_t& at, FunctionCall& call) const {
  OrderedJson object;
  const Step step = read_json(text, at, object);
  if (step != Step::kDone) return step;
  const OrderedJson* const name = member_of(&object, format_.name_key);
  if (name == nullptr || !name->is_string() || !is_known(name->get<std::string>()))
    return Step::kFailed;
  OrderedJson arguments = OrderedJson::object();
  for (const Text key : {Text(format_.arguments_key), Text("arguments"), Text("parameters")}) {
    const OrderedJson* const given = member_of(&object, key);
    if (given == nullptr) continue;
    arguments = given->is_string() ? parse_bounded(given->get_ref<const std::string&>()) : *given;
    break;
  }
  if (!arguments.is_object()) return Step::kFailed;
  call = {name->get<std::string>(), json_text(arguments)};
  return Step::kDone;
}

Step CallReader::read_named(Text text, std::size_t& at, FunctionCall& call) const {
  std::string name;
  if (format_.middle.empty()) {
    const std::size_t brace = text.find('{', at);
    if (brace == Text::npos) return Step::kNeedsMore;
    name = text.substr(at, brace - at);
    at = brace;
  } else if (const Step step = read_until(text, format_.middle, at, name); step != Step::kDone) {
    return step;
  }
  name = without_spaces(name);
  if (!is_known(name)) name.resize(std::min(name.rfind(':'), name.size()));  // Kimi's "f:0"
  if (!is_known(name)) return Step::kFailed;
  at = std::min(text.find('{', at), text.size());  // an id may stand before
  OrderedJson arguments;
  const Step step = read_json(text, at, arguments);
  if (step == Step::kDone) call = {std::move(name), json_text(arguments)};
  return step;
}

Step CallReader::read_pairs(Text text, bool is_whole, std::size_t& at, FunctionCall& call) const {
  const std::size_t key = text.find(format_.key_begin, at);
  const std::size_t end = format_.end.empty() ? Text::npos : text.find(format_.end, at);
  const std::size_t name_end = std::min(key, end);
  if (name_end == Text::npos) return Step::kNeedsMore;
  Text name_text = without_spaces(text.substr(at, name_end - at));
  if (name_text.ends_with(format_.middle)) name_text.remove_suffix(format_.middle.size());
  const std::string name(without_spaces(name_text));
  if (!is_known(name)) return Step::kFailed;
  at = name_end;
  OrderedJson arguments = OrderedJson::object();
  while (text.substr(at).starts_with(format_.key_begin)) {
    at += format_.key_begin.size();
    std::string one;
    std::string value;
    for (const auto& [marker, found] :
         {std::pair(&format_.key_end, &one), std::pair(&format_.value_end, &value)})
      if (const Step step = read_until(text, *marker, at, *found); step != Step::kDone) return step;
    one = without_spaces(one);
    arguments[one] = value_of(name, one, without_line_breaks(std::move(value)));
    const Text rest = without_leading_spaces(text.substr(at));
    if (!is_whole && may_become(rest, format_.key_begin)) return Step::kNeedsMore;
    if (!rest.starts_with(format_.key_begin)) break;
    at = text.size() - rest.size();
  }
  call = {name, json_text(arguments)};
  return Step::kDone;
}

OrderedJson CallReader::value_of(const std::string& function, const std::string& key,
                                 std::string text) const {
  const OrderedJson* schema = function_of(tools_, function);
  for (const Text step : {Text("parameters"), Text("properties"), Text(key), Text("type")})
    schema = member_of(schema, step);
  const bool is_string = schema != nullptr && *schema == "string";
  OrderedJson value = is_string ? OrderedJson() : parse_bounded(text);
  return is_string || value.is_discarded() ? OrderedJson(std::move(text)) : value;
}

}  // namespace llm
