#include "base/json.h"

#include <iterator>
#include <memory>
#include <utility>

namespace {

template <typename Value>
bool has_children(const Value& value) {
  return value.is_structured() && !value.empty();
}

template <typename Value>
Value& first_child(Value& parent) {
  if (auto* const array = parent.template get_ptr<typename Value::array_t*>())
    return array->front();
  return parent.template get_ref<typename Value::object_t&>().begin()->second;
}

template <typename Value>
Value take_last_child(Value& parent) {
  if (auto* const array = parent.template get_ptr<typename Value::array_t*>()) {
    Value child = std::move(array->back());
    array->pop_back();
    return child;
  }
  auto& object = parent.template get_ref<typename Value::object_t&>();
  const auto last = std::prev(object.end());
  Value child = std::move(last->second);
  object.erase(last);
  return child;
}

/// Frees `value`, neither allocating nor recursing. The containers under way are a chain: the place
/// of the first child of each, which is freed first, takes the container it lies in.
template <typename Value>
void free_whole(Value& value) {
  Value chain;
  Value next = std::move(value);
  while (true) {
    if (has_children(next)) {
      std::swap(first_child(next), chain);
      std::swap(next, chain);
    } else if (!has_children(chain)) {
      return;
    } else if (chain.size() > 1) {
      next = take_last_child(chain);
    } else {
      Value parent = std::move(first_child(chain));
      chain.clear();
      chain = std::move(parent);
    }
  }
}

/// @param made  of std::allocator; may be null, where memory for it was refused
template <typename T>
void release(T* made) {
  if (made == nullptr) return;
  std::destroy_at(made);
  std::allocator<T>().deallocate(made, 1);
}

/// nlohmann's json_value::destroy().
template <typename Value, typename Held>
void destroy_held(typename Value::value_t type, Held& held) {
  using Type = typename Value::value_t;
  if (type == Type::array && held.array != nullptr) {
    for (Value& child : *held.array) free_whole(child);
    release(held.array);
  } else if (type == Type::object && held.object != nullptr) {
    for (auto& [name, child] : *held.object) free_whole(child);
    release(held.object);
  } else if (type == Type::string) {
    release(held.string);
  } else if (type == Type::binary) {
    release(held.binary);
  }
}

template <typename Value>
bool is_text(const Value& value, const char* text) {
  const auto* const held = value.template get_ptr<const std::string*>();
  return held != nullptr && *held == text;
}

}  // namespace

template <>
void llm::Json::json_value::destroy(llm::Json::value_t type) {
  destroy_held<llm::Json>(type, *this);
}

template <>
void llm::OrderedJson::json_value::destroy(llm::OrderedJson::value_t type) {
  destroy_held<llm::OrderedJson>(type, *this);
}

bool nlohmann::operator==(const llm::Json& value, const char* text) noexcept {
  return is_text(value, text);
}

bool nlohmann::operator==(const llm::OrderedJson& value, const char* text) noexcept {
  return is_text(value, text);
}

namespace llm {

Json parse_json(std::string_view text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string json_text(const Json& json, int indent, bool ascii) {
  return json.dump(indent, ' ', ascii, Json::error_handler_t::replace);
}

std::string json_text(const OrderedJson& json, int indent, bool ascii) {
  return json.dump(indent, ' ', ascii, OrderedJson::error_handler_t::replace);
}

}  // namespace llm
