#include "engine/chat/jinja/runtime.h"

#include <fmt/format.h>

#include <algorithm>

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

bool Runtime::charge(std::size_t steps) {
  steps_ += steps;
  if (steps_ > kMaxSteps) {
    fail(ErrorCode::kResource, fmt::format("found more than {} steps, need fewer", kMaxSteps));
  }
  return !failed();
}

bool Runtime::take_memory(std::size_t bytes) {
  memory_.used += bytes;
  if (memory_.used > kMaxMemory) {
    fail(ErrorCode::kResource,
         fmt::format("found values of more than {} MiB, need less", kMaxMemory >> 20));
  }
  return !failed();
}

Value Runtime::text(Text text, bool is_safe) {
  if (text.is_too_long()) {
    return fail(ErrorCode::kResource,
                fmt::format("found a text of more than {} MiB, need less", Text::kMaxBytes >> 20));
  }
  const std::size_t bytes = sizeof(TextObject) + text.size() + text.runs().size_bytes();
  charge(text.size() / 64);
  if (!take_memory(0)) return Undefined{};
  return TextPtr(new TextObject{std::move(text), is_safe, Lease(&memory_, bytes)});
}

bool Runtime::extend(Extent& extent, const Value& item) {
  if (item.is<NamespacePtr>() || item.is<const Macro*>() || item.is<const Loop*>()) {
    unsupported(fmt::format("a {} in a list or dict", type_name(item)));
    return false;
  }
  const Extent one = extent_of(item);
  extent.depth = std::max(extent.depth, one.depth + 1);
  extent.weight += one.weight;
  if (extent.depth > kMaxValueDepth || extent.weight > kMaxWeight) {
    fail(ErrorCode::kResource,
         fmt::format("found a list or dict of {} levels and weight {}, need at most {} and {}",
                     extent.depth, extent.weight, kMaxValueDepth, kMaxWeight));
  }
  return !failed();
}

Value Runtime::list(std::vector<Value> items, bool is_tuple) {
  Extent extent;
  charge(items.size() / 8);
  for (const Value& item : items) {
    if (!extend(extent, item)) return Undefined{};
  }
  const std::size_t bytes = sizeof(ListObject) + items.size() * sizeof(Value);
  if (!take_memory(0)) return Undefined{};
  return ListPtr(new ListObject{std::move(items), is_tuple, extent, Lease(&memory_, bytes)});
}

Value Runtime::dict(std::vector<std::pair<Value, Value>> items) {
  // Keys are found by going through them: two dicts are compared in n * n steps.
  Extent extent{.weight = 1 + items.size() * items.size() / 64};
  charge(items.size() / 4);
  for (const auto& [key, value] : items) {
    if (!extend(extent, key) || !extend(extent, value)) return Undefined{};
    if (key.dict() || (key.list() && !key.list()->is_tuple)) {
      return wrong(fmt::format("found a {} as a key of a dict", type_name(key)));
    }
  }
  const std::size_t bytes = sizeof(DictObject) + 2 * items.size() * sizeof(Value);
  if (!take_memory(0)) return Undefined{};
  return DictPtr(new DictObject{std::move(items), extent, Lease(&memory_, bytes)});
}

Value Runtime::unique_dict(std::vector<std::pair<Value, Value>> items) {
  std::vector<std::pair<Value, Value>> kept;
  for (auto& item : items) {
    if (!charge(1 + kept.size() / 8)) return Undefined{};
    const auto same = std::ranges::find_if(
        kept, [&](const auto& other) { return is_equal(other.first, item.first); });
    if (same == kept.end()) {
      kept.push_back(std::move(item));
    } else {
      same->second = std::move(item.second);
    }
  }
  return dict(std::move(kept));
}

Value Runtime::undefined(std::string what) const {
  return Undefined{std::make_shared<const std::string>(std::move(what))};
}

Value Runtime::from_json(const OrderedJson& json, Tag tag, std::size_t depth) {
  if (depth > kMaxValueDepth) {
    return fail(ErrorCode::kResource,
                fmt::format("found JSON of more than {} levels, need fewer", kMaxValueDepth));
  }
  if (failed()) return Undefined{};
  if (json.is_null()) return None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned()) return Int{json.get<std::uint64_t>()};
  if (json.is_number_integer()) return Int{json.get<std::int64_t>()};
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return text(json.get_ref<const std::string&>(), tag);
  if (json.is_array()) {
    std::vector<Value> items;
    for (const OrderedJson& item : json) items.push_back(from_json(item, tag, depth + 1));
    return list(std::move(items));
  }
  if (!json.is_object()) return unsupported("JSON that is no value");
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [key, value] : json.items()) {
    items.emplace_back(text(key, kContent), from_json(value, tag, depth + 1));
  }
  return dict(std::move(items));
}

std::vector<Value> Runtime::items_of(const Value& value) {
  std::vector<Value> items;
  if (value.is<Undefined>() || failed()) return items;
  if (const ListObject* list = value.list()) {
    charge(list->items.size() / 8);
    return list->items;
  }
  if (const DictObject* dict = value.dict()) {
    charge(dict->items.size() / 8);
    for (const auto& [key, ignored] : dict->items) items.push_back(key);
    return items;
  }
  const Text* all = value.text();
  if (!all) {
    wrong(fmt::format("'{}' object is not iterable", type_name(value)));
    return items;
  }
  for (std::size_t at = 0; at < all->size() && charge();) {
    const std::size_t n = character_size(all->bytes(), at);
    items.push_back(text(all->part(at, n)));
    at += n;
  }
  return items;
}

Text Runtime::str(const Value& value) {
  Text out;
  append_str(value, out);
  charge(out.size() / 64);
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
      wrong(fmt::format("found an argument {} of {}, which has none of that name", name, what));
      return bound;
    }
    bound[static_cast<std::size_t>(at - names.begin())] = &value;
  }
  return bound;
}

}  // namespace llm::jinja
