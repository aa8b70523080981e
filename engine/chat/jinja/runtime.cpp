#include "engine/chat/jinja/runtime.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/shown_text.h"
#include "engine/chat/jinja/lexer.h"

namespace llm::jinja {

Value Runtime::fail(ErrorCode code, std::string_view message) {
  if (!error_) error_ = template_error(code, line, message);
  return Undefined{};
}

Value Runtime::unsupported(std::string_view what) {
  return fail(ErrorCode::kUnsupported, fmt::format("found {}, which is not supported", what));
}

bool Runtime::is_there(const Value& value) {
  if (!value.is<Undefined>()) return true;
  wrong(undefined_text(value));
  return false;
}

Value Runtime::too_long(const Text& text) {
  const bool has_runs = text.runs().size() == Text::kMaxRuns;
  return fail(
      ErrorCode::kResource,
      has_runs ? fmt::format("found a text of more than {} parts of other sources, need fewer",
                             Text::kMaxRuns)
               : fmt::format("found a text of more than {} MiB, need less", Text::kMaxBytes >> 20));
}

Value Runtime::text(Text text, bool is_safe) {
  jinja::charge();
  touch(text.size());  // it may be a copy
  if (text.is_too_long()) return too_long(text);
  return TextPtr(make_counted(TextObject{std::move(text), is_safe}));
}

bool Runtime::may_hold(const Value& item, std::size_t& depth) {
  touch(16);
  if (item.is<NamespacePtr>() || item.is<const Macro*>() || item.is<const Loop*>()) {
    unsupported(fmt::format("a {} in a list or dict", type_name(item)));
    return false;
  }
  depth = std::max(depth, depth_of(item) + 1);
  if (depth > kMaxValueDepth) {
    fail(ErrorCode::kResource,
         fmt::format("found more than {} lists and dicts inside each other, need fewer",
                     kMaxValueDepth));
  }
  return !failed();
}

Value Runtime::list(Values items, bool is_tuple) {
  jinja::charge();
  std::size_t depth = 1;
  for (const Value& item : items) {
    if (!may_hold(item, depth)) return Undefined{};
  }
  return ListPtr(make_counted(ListObject{std::move(items), is_tuple, false, depth}));
}

Value Runtime::generator(Values items) {
  const Value made = list(std::move(items));
  if (failed()) return Undefined{};
  return ListPtr(make_counted(ListObject{made.list()->items, false, true, made.list()->depth}));
}

void Runtime::add(DictObject& dict, const Value& key, Value value) {
  if (may_hold(key, dict.depth) && may_hold(value, dict.depth) && is_key(key))
    dict.items.set(key, std::move(value));
}

bool Runtime::is_key(const Value& key) {
  if (key.dict() || (key.list() && !key.list()->is_tuple))
    wrong(fmt::format("found a {} as a key", type_name(key)));
  return !failed();
}

Value Runtime::undefined(std::string_view what) const {
  jinja::charge();
  touch(what.size());
  return Undefined{make_counted(String(what.size() <= kLineBytes ? what : shown(what)))};
}

Value Runtime::from_json(const OrderedJson& json, Tag tag, std::size_t depth) {
  if (depth > kMaxValueDepth) {
    return fail(ErrorCode::kResource,
                fmt::format("found JSON of more than {} levels, need fewer", kMaxValueDepth));
  }
  if (!charge()) return Undefined{};
  if (json.is_null()) return None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned()) return Int{json.get<std::uint64_t>()};
  if (json.is_number_integer()) return Int{json.get<std::int64_t>()};
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return text(json.get_ref<const std::string&>(), tag);
  if (json.is_array()) {
    Values items;
    for (const OrderedJson& item : json) items.push_back(from_json(item, tag, depth + 1));
    return list(std::move(items));
  }
  if (!json.is_object()) return unsupported("JSON of an unknown type");
  DictObject made;
  for (const auto& [key, value] : json.items()) {
    add(made, text(key, kContent), from_json(value, tag, depth + 1));
  }
  return dict(std::move(made));
}

Values Runtime::items_of(const Value& value) {
  Values items;
  if (value.is<Undefined>() || failed()) return items;
  if (const ListObject* list = value.list()) {
    touch(8 * list->items.size());
    return list->items;
  }
  if (const DictObject* dict = value.dict()) {
    touch(8 * dict->items.size());
    for (const auto& [key, ignored] : dict->items) items.push_back(key);
    return items;
  }
  const Text* all = value.text();
  if (!all) {
    wrong(fmt::format("'{}' object is not iterable", type_name(value)));
    return items;
  }
  for (std::size_t at = 0; at < all->size();) {
    const std::size_t n = character_size(all->bytes(), at);
    items.push_back(text(all->part(at, n)));
    at += n;
  }
  return items;
}

Text Runtime::str(const Value& value) {
  Text out;
  append_str(value, out);
  if (out.is_too_long()) text(std::move(out));  // fails
  return out;
}

const Text& Runtime::need_text(const Value& value, std::string_view what) {
  static const Text kEmpty;
  const Text* text = value.text();
  if (text) return *text;
  if (is_there(value)) wrong(fmt::format("found a {} as {}, need a str", type_name(value), what));
  return kEmpty;
}

Int Runtime::need_int(const Value& value, std::string_view what) {
  if (const auto i = value.integer()) return *i;
  if (is_there(value)) wrong(fmt::format("found a {} as {}, need an int", type_name(value), what));
  return 0;
}

std::vector<const Value*> Runtime::bind(const Args& args,
                                        std::initializer_list<std::string_view> names,
                                        std::string_view what) {
  std::vector<const Value*> bound(names.size());
  if (args.values.size() > names.size()) {
    wrong(fmt::format("found {} arguments of {}, need at most {}", args.values.size(), what,
                      names.size()));
    return bound;
  }
  for (std::size_t i = 0; i < args.values.size(); ++i) bound[i] = &args.values[i];
  for (const auto& [name, value] : args.named) {
    const auto at = std::ranges::find(names, name);
    if (at == names.end()) {
      wrong(fmt::format("found an argument {} of {}, which has no argument of that name",
                        shown(name), what));
      return bound;
    }
    bound[static_cast<std::size_t>(at - names.begin())] = &value;
  }
  return bound;
}

std::string shown_value(const Value& value) {
  if (const Text* text = value.text()) return quoted(text->bytes().substr(0, kLineBytes));
  if (value.is_number())
    return value.is<double>() ? float_text(value.number()) : int_text(*value.integer());
  return fmt::format("of type {}", type_name(value));
}

}  // namespace llm::jinja
